use super::*;
use muster_apiserver::{Host, Persistence};

async fn api() -> (Client, Clock, Host) {
    let clock = Clock::following_tokio(jiff::Timestamp::UNIX_EPOCH);
    let host = Host::open(Persistence::Memory, clock.clone())
        .await
        .unwrap();
    let client = host.cluster("management").await.unwrap().client();
    (client, clock, host)
}

fn candidate(client: &Client, clock: &Clock, identity: &str) -> Candidate {
    Candidate {
        client: client.clone(),
        namespace: "default".to_owned(),
        name: "muster".to_owned(),
        identity: identity.to_owned(),
        timing: Timing::default(),
        clock: clock.clone(),
    }
}

async fn spec(client: &Client) -> LeaseSpec {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    leases.get("muster").await.unwrap().spec.unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_next_follows_as_soon_as_it_gives_the_lease_back() {
    let (client, clock, _host) = api().await;
    let stop = CancellationToken::new();
    let first = candidate(&client, &clock, "a")
        .campaign(&stop)
        .await
        .unwrap();
    let next = tokio::spawn({
        let (second, stop) = (candidate(&client, &clock, "b"), stop.clone());
        async move { second.campaign(&stop).await.unwrap() }
    });
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(first.holds() && !next.is_finished(), "renewed for an hour");
    first.release().await.unwrap();
    let released = Instant::now();
    let second = next.await.unwrap();
    assert!(
        released.elapsed() <= Timing::default().retry + Duration::from_millis(100),
        "{:?}",
        released.elapsed()
    );
    let spec = spec(&client).await;
    assert_eq!(spec.holder_identity.as_deref(), Some("b"));
    assert_eq!(spec.lease_transitions, Some(1));
    assert!(second.holds());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_is_followed_once_its_lease_has_run_out_and_not_before() {
    let (client, clock, _host) = api().await;
    let stop = CancellationToken::new();
    let first = candidate(&client, &clock, "a")
        .campaign(&stop)
        .await
        .unwrap();
    let next = tokio::spawn({
        let (second, stop) = (candidate(&client, &clock, "b"), stop.clone());
        async move { second.campaign(&stop).await.unwrap() }
    });
    tokio::time::sleep(Duration::from_secs(60)).await;
    // Without giving anything back, as a killed process does.
    drop(first);
    let died = Instant::now();
    next.await.unwrap();
    let timing = Timing::default();
    assert!(
        died.elapsed() >= timing.lease - timing.retry,
        "{:?}",
        died.elapsed()
    );
    assert!(
        died.elapsed() <= timing.lease + 2 * timing.retry,
        "{:?}",
        died.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_somebody_took_knows_it_at_its_next_renewal() {
    let (client, clock, _host) = api().await;
    let stop = CancellationToken::new();
    let first = candidate(&client, &clock, "a")
        .campaign(&stop)
        .await
        .unwrap();
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    let mut lease = leases.get("muster").await.unwrap();
    lease.spec.as_mut().unwrap().holder_identity = Some("thief".to_owned());
    leases
        .replace("muster", &PostParams::default(), &lease)
        .await
        .unwrap();
    tokio::time::timeout(2 * Timing::default().retry, first.lost())
        .await
        .unwrap();
    first.release().await.unwrap();
    assert_eq!(
        spec(&client).await.holder_identity.as_deref(),
        Some("thief")
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_gives_up_before_another_may_take_over() {
    let (client, clock, _host) = api().await;
    let cut = CancellationToken::new();
    let (whole, is_cut) = (client.clone(), cut.clone());
    // From the cut on, requests are taken and never answered.
    let wire = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (client, cut) = (whole.clone(), is_cut.clone());
        async move {
            if cut.is_cancelled() {
                std::future::pending::<()>().await;
            }
            client.send(request).await
        }
    });
    let client = Client::new(wire, "default");
    let stop = CancellationToken::new();
    let first = candidate(&client, &clock, "a")
        .campaign(&stop)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    cut.cancel();
    let closed = Instant::now();
    first.lost().await;
    let timing = Timing::default();
    assert!(
        closed.elapsed() <= timing.renew_within,
        "{:?}",
        closed.elapsed()
    );
    assert!(closed.elapsed() < timing.lease);
}

#[tokio::test(start_paused = true)]
async fn of_many_candidates_at_once_just_one_leads() {
    let (client, clock, _host) = api().await;
    let stop = CancellationToken::new();
    let campaigns: Vec<_> = (0..16)
        .map(|number| {
            let (candidate, stop) = (
                candidate(&client, &clock, &number.to_string()),
                stop.clone(),
            );
            tokio::spawn(async move { candidate.campaign(&stop).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(campaigns.iter().filter(|c| c.is_finished()).count(), 1);
    stop.cancel();
    let mut leaders = 0;
    for campaign in campaigns {
        leaders += usize::from(campaign.await.unwrap().is_some());
    }
    assert_eq!(leaders, 1);
}
