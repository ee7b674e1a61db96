//! The types of conditions, each with the reasons that it may have. Source: Cluster API, but for what is marked as ours.

use super::Reason;

macro_rules! conditions {
    ($($(#[$doc:meta])* $type:ident: $($reason:ident),+;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $(#[doc = concat!("`", stringify!($reason), "`")] $reason,)+
        }

        impl Reason for $type {
            const TYPE: &'static str = stringify!($type);

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$reason => stringify!($reason),)+
                }
            }
        }
    )+};
}

conditions! {
    /// Ready for as long as it must be.
    Available: Available, NotAvailable, NotReady, WaitingForMinReadySeconds, InternalError;
    /// Everything about it is as it should be. From `InvalidReplicas` on the reasons are
    /// those of Muster's own providers.
    Ready: Ready, NotReady, ReadyUnknown, InternalError, InvalidReplicas,
        WaitingForClusterInfrastructure, BootstrapSecretMissing, WaitingForBootstrapData, UnknownZone, CloudError,
        CloudTrouble, InstanceTerminating, KubeletTooNew,
        HeldByMachinePool;
    /// It is what its owner wants.
    UpToDate: UpToDate, NotUpToDate, Updating;
    /// Its bootstrap data is there.
    BootstrapConfigReady: DataSecretProvided, Ready, NotReady, InvalidConditionReported, InternalError,
        ObjectDoesNotExist, ObjectDeleted;
    /// Its infrastructure is there.
    InfrastructureReady: Ready, NotReady, InvalidConditionReported, InternalError, ObjectDoesNotExist, ObjectDeleted;
    /// The workload cluster's API has answered.
    ControlPlaneInitialized: Initialized, NotInitialized;
    /// The workload cluster's API answered lately.
    RemoteConnectionProbe: ProbeSucceeded, ProbeFailed;
    /// Its Node is ready and under no pressure.
    NodeHealthy: NodeHealthy, NodeNotHealthy, NodeHealthyUnknown, NodeDoesNotExist, NodeDeleted, InspectionFailed,
        ConnectionDown, InternalError;
    /// Its Node is ready.
    NodeReady: NodeReady, NodeNotReady, NodeReadyUnknown, NodeDoesNotExist, NodeDeleted, InspectionFailed,
        ConnectionDown, InternalError;
    /// No health check finds fault.
    HealthCheckSucceeded: HealthCheckSucceeded, UnhealthyNode, UnhealthyMachine, NodeStartupTimeout, NodeDeleted,
        HasRemediateAnnotation;
    /// Its owner has repaired it.
    OwnerRemediated: WaitingForRemediation, RemediationDeferred, CannotBeRemediated, MachineDeleting;
    /// Something outside has repaired it.
    ExternallyRemediated: WaitingForRemediation, RemediationTemplateNotFound, RemediationRequestCreationFailed;
    /// A health check may have machines repaired.
    RemediationAllowed: RemediationAllowed, TooManyUnhealthy;
    /// It is being deleted.
    Deleting: NotDeleting, Deleting, WaitingForPreDrainHook, DrainingNode, WaitingForVolumeDetach,
        WaitingForPreTerminateHook, WaitingForInfrastructureDeletion, WaitingForBootstrapDeletion, DeletingNode,
        DeletionCompleted, WaitingForBeforeDeleteHook, WaitingForWorkersDeletion, WaitingForControlPlaneDeletion,
        InternalError;
    /// Controllers leave it alone.
    Paused: Paused, NotPaused;
    /// More machines are wanted than there are.
    ScalingUp: ScalingUp, NotScalingUp, InternalError;
    /// Fewer machines are wanted than there are.
    ScalingDown: ScalingDown, NotScalingDown, InternalError;
    /// Sick machines are being replaced.
    Remediating: Remediating, NotRemediating, InternalError;
    /// Machines that are not up to date are being replaced. `RolloutStopped` and `RolloutRefused` are ours: they are to
    /// be, and something has to be put right first.
    RollingOut: RollingOut, NotRollingOut, RolloutStopped, RolloutRefused, InternalError;
    /// Of a MachinePoolPolicy: it counts for its pool. Ours.
    Accepted: Accepted, Conflicting, NoSuchPool;
    /// Of a PodDisruptionBudget: a Pod may be evicted now. Source: Kubernetes.
    DisruptionAllowed: SufficientPods, InsufficientPods, SyncFailed;
    /// All machines are ready.
    MachinesReady: Ready, NotReady, ReadyUnknown, NoReplicas, InternalError;
    /// All machines are up to date.
    MachinesUpToDate: UpToDate, NotUpToDate, UpToDateUnknown, NoReplicas, InternalError;
}
