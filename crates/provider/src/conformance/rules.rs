//! The rules, one function each.

use std::collections::{BTreeMap, BTreeSet};

use super::{Bench, Pool, Rule, Seen, expect, has_live, ids, live, running, told};
use crate::scale_group::{ProviderError, ScaleGroup, Size};

pub(super) async fn check<B: Bench>(rule: Rule, bench: &B) -> Result<(), Seen> {
    match rule {
        Rule::AbsentGroupIsTold => absent_group_is_told(bench).await,
        Rule::EnsuredOnce => ensured_once(bench).await,
        Rule::SizeComesTrue => size_comes_true(bench).await,
        Rule::ZonesAreEven => zones_are_even(bench).await,
        Rule::LowerTakesJustThat => lower_takes_just_that(bench).await,
        Rule::KeepIsReplaced => keep_is_replaced(bench).await,
        Rule::RepeatedTerminationCountsOnce => repeated_termination_counts_once(bench).await,
        Rule::TerminationsSideBySide => terminations_side_by_side(bench).await,
        Rule::UnknownInstance => unknown_instance(bench).await,
        Rule::OutsideTermination => outside_termination(bench).await,
        Rule::OutsideSize => outside_size(bench).await,
        Rule::ChangedTemplate => changed_template(bench).await,
        Rule::Deletion => deletion(bench).await,
    }
}

async fn absent_group_is_told<B: Bench>(bench: &B) -> Result<(), Seen> {
    let spec = bench.spec(&Rule::AbsentGroupIsTold.pool()).await;
    let described = bench.provider().describe(&spec.pool).await?;
    expect(described.is_none(), || {
        "a group that was never made is told as there".to_owned()
    })?;
    match bench.provider().delete(&spec.pool).await {
        Ok(()) | Err(ProviderError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn ensured_once<B: Bench>(bench: &B) -> Result<(), Seen> {
    let pool = Pool::of(bench, Rule::EnsuredOnce, 0).await?;
    pool.provider().set_size(pool.key(), 2).await?;
    let before = pool
        .comes_to("2 running instances", |g| running(g) == 2)
        .await?;
    for _ in 0..3 {
        pool.provider().ensure(&pool.spec).await?;
    }
    pool.stays("a group that was made again", |g| {
        g.size == 2 && ids(g) == ids(&before)
    })
    .await
}

async fn size_comes_true<B: Bench>(bench: &B) -> Result<(), Seen> {
    let pool = Pool::of(bench, Rule::SizeComesTrue, 0).await?;
    pool.provider().set_size(pool.key(), 5).await?;
    let at_once = pool.group().await?;
    expect(at_once.size == 5, || {
        format!("size 5 was set, and then there was {}", told(&at_once))
    })?;
    let group = pool
        .comes_to("5 running instances", |g| running(g) == 5)
        .await?;
    let distinct: BTreeSet<&str> = group.instances.iter().map(|i| i.id.as_str()).collect();
    expect(distinct.len() == 5, || {
        format!("5 instances are not distinct: {}", told(&group))
    })?;
    for instance in &group.instances {
        expect(pool.spec.zones.contains(&instance.zone), || {
            format!(
                "instance {} is in {:?}, which is none of {:?}",
                instance.id, instance.zone, pool.spec.zones
            )
        })?;
        expect(
            instance.provider_id.contains(&instance.id) && instance.provider_id.contains("://"),
            || {
                format!(
                    "{:?} does not look like the provider ID of instance {}",
                    instance.provider_id, instance.id
                )
            },
        )?;
        expect(instance.up_to_date, || {
            format!("instance {} is out of date when new", instance.id)
        })?;
    }
    pool.provider().set_size(pool.key(), 5).await?;
    pool.stays("a size that was set again", |g| {
        g.size == 5 && ids(g) == ids(&group)
    })
    .await
}

async fn zones_are_even<B: Bench>(bench: &B) -> Result<(), Seen> {
    if !bench.spreads() {
        return Ok(());
    }
    let pool = Pool::of(bench, Rule::ZonesAreEven, 7).await?;
    let group = pool.group().await?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for zone in &pool.spec.zones {
        counts.insert(zone, 0);
    }
    for instance in group.instances.iter().filter(|i| i.is_live()) {
        *counts.entry(&instance.zone).or_default() += 1;
    }
    let (low, high) = (counts.values().min(), counts.values().max());
    expect(
        low.zip(high).is_some_and(|(low, high)| high - low <= 1),
        || format!("7 instances are spread as {counts:?}"),
    )
}

async fn lower_takes_just_that<B: Bench>(bench: &B) -> Result<(), Seen> {
    let pool = Pool::of(bench, Rule::LowerTakesJustThat, 4).await?;
    let before = pool.group().await?;
    let victim = before.instances[1].id.clone();
    pool.provider()
        .terminate(pool.key(), &victim, Size::Lower)
        .await?;
    let at_once = pool.group().await?;
    expect(at_once.size == 3, || {
        format!(
            "the size was to go from 4 to 3, there was {}",
            told(&at_once)
        )
    })?;
    pool.comes_to("the end of the instance", |g| !has_live(g, &victim))
        .await?;
    let others: Vec<String> = ids(&before)
        .into_iter()
        .filter(|id| *id != victim)
        .collect();
    pool.stays("3 instances of 4, just those not terminated", |g| {
        g.size == 3 && live(g) == 3 && others.iter().all(|id| has_live(g, id))
    })
    .await
}

async fn keep_is_replaced<B: Bench>(bench: &B) -> Result<(), Seen> {
    let pool = Pool::of(bench, Rule::KeepIsReplaced, 3).await?;
    let before = pool.group().await?;
    let victim = before.instances[0].id.clone();
    pool.provider()
        .terminate(pool.key(), &victim, Size::Keep)
        .await?;
    let at_once = pool.group().await?;
    expect(at_once.size == 3, || {
        format!("the size was to stay 3, there was {}", told(&at_once))
    })?;
    let others: Vec<String> = ids(&before)
        .into_iter()
        .filter(|id| *id != victim)
        .collect();
    pool.comes_to("another instance in its place", |g| {
        !has_live(g, &victim) && running(g) == 3 && live(g) == 3
    })
    .await?;
    pool.stays("the others", |g| {
        g.size == 3 && others.iter().all(|id| has_live(g, id))
    })
    .await
}

async fn repeated_termination_counts_once<B: Bench>(bench: &B) -> Result<(), Seen> {
    let pool = Pool::of(bench, Rule::RepeatedTerminationCountsOnce, 4).await?;
    let before = pool.group().await?;
    let (first, second) = (
        before.instances[0].id.clone(),
        before.instances[1].id.clone(),
    );
    let again =
        async |id: &str, size: Size| match pool.provider().terminate(pool.key(), id, size).await {
            Ok(()) | Err(ProviderError::NotFound { .. }) => Ok(()),
            Err(error) => Err(Seen::from(error)),
        };
    again(&first, Size::Lower).await?;
    again(&first, Size::Lower).await?;
    again(&second, Size::Keep).await?;
    again(&second, Size::Lower).await?;
    let gone = pool
        .comes_to("3 running instances without those two", |g| {
            running(g) == 3 && live(g) == 3 && !has_live(g, &first) && !has_live(g, &second)
        })
        .await?;
    again(&first, Size::Lower).await?;
    again(&second, Size::Lower).await?;
    let left: Vec<String> = gone
        .instances
        .iter()
        .filter(|i| i.is_live())
        .map(|i| i.id.clone())
        .collect();
    pool.stays(
        "3 instances after terminations that were asked for again",
        |g| g.size == 3 && live(g) == 3 && left.iter().all(|id| has_live(g, id)),
    )
    .await
}

async fn terminations_side_by_side<B: Bench>(bench: &B) -> Result<(), Seen> {
    let pool = Pool::of(bench, Rule::TerminationsSideBySide, 8).await?;
    let before = ids(&pool.group().await?);
    let (victims, others) = before.split_at(5);
    let ends = victims
        .iter()
        .map(|id| pool.provider().terminate(pool.key(), id, Size::Lower));
    for end in futures::future::join_all(ends).await {
        end?;
    }
    let at_once = pool.group().await?;
    expect(at_once.size == 3, || {
        format!("5 of 8 were terminated, there was {}", told(&at_once))
    })?;
    pool.comes_to("the end of five", |g| live(g) == 3).await?;
    pool.stays("the other three", |g| {
        g.size == 3 && live(g) == 3 && others.iter().all(|id| has_live(g, id))
    })
    .await
}

async fn unknown_instance<B: Bench>(bench: &B) -> Result<(), Seen> {
    let pool = Pool::of(bench, Rule::UnknownInstance, 2).await?;
    let before = ids(&pool.group().await?);
    for size in [Size::Keep, Size::Lower] {
        match pool
            .provider()
            .terminate(pool.key(), "i-00000000000000000", size)
            .await
        {
            Ok(()) | Err(ProviderError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    pool.stays("a group of which nothing was terminated", |g| {
        g.size == 2 && ids(g) == before
    })
    .await
}

async fn outside_termination<B: Bench>(bench: &B) -> Result<(), Seen> {
    let pool = Pool::of(bench, Rule::OutsideTermination, 3).await?;
    let victim = pool.group().await?.instances[0].id.clone();
    bench.terminate_outside(pool.key(), &victim).await;
    pool.comes_to("another instance in place of the one that went", |g| {
        g.size == 3 && running(g) == 3 && !has_live(g, &victim)
    })
    .await?;
    Ok(())
}

async fn outside_size<B: Bench>(bench: &B) -> Result<(), Seen> {
    let pool = Pool::of(bench, Rule::OutsideSize, 2).await?;
    bench.resize_outside(pool.key(), 4).await;
    pool.comes_to("the size that was set outside", |g| {
        g.size == 4 && running(g) == 4
    })
    .await?;
    Ok(())
}

async fn changed_template<B: Bench>(bench: &B) -> Result<(), Seen> {
    let pool = Pool::of(bench, Rule::ChangedTemplate, 2).await?;
    let before = ids(&pool.group().await?);
    let changed = bench.changed(&pool.spec).await;
    pool.provider().ensure(&changed).await?;
    pool.comes_to("two instances that are out of date", |g| {
        ids(g) == before && g.instances.iter().all(|i| !i.up_to_date)
    })
    .await?;
    pool.provider().ensure(&changed).await?;
    pool.stays("two instances that are out of date", |g| {
        ids(g) == before && g.size == 2 && g.instances.iter().all(|i| !i.up_to_date)
    })
    .await?;
    pool.provider().set_size(pool.key(), 3).await?;
    pool.comes_to("a third one, of the new template", |g| {
        let new = g.instances.iter().filter(|i| i.up_to_date);
        running(g) == 3 && new.count() == 1
    })
    .await?;
    Ok(())
}

async fn deletion<B: Bench>(bench: &B) -> Result<(), Seen> {
    let pool = Pool::of(bench, Rule::Deletion, 2).await?;
    let mut left = String::new();
    for _ in 0..super::PATIENCE {
        match pool.provider().delete(pool.key()).await {
            Ok(()) | Err(ProviderError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        match pool.provider().describe(pool.key()).await? {
            None => return Ok(()),
            Some(group) => left = told(&group),
        }
        bench.moment().await;
    }
    Err(Seen(format!(
        "a group that was deleted is still there: {left}"
    )))
}
