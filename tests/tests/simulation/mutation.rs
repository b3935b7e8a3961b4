//! Rules broken on purpose.

/// A rule broken on purpose, to see that the judge notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Rule 7 and 10: a live lease does not protect.
    LeaseProtectsNobody,
    /// A further attempt keeps the number of the one before.
    AttemptStands,
    /// Awards do not raise the token.
    TokenStands,
    /// `decided` follows the claim down and up.
    DecidedFollows,
    /// Rule 9: a finished occurrence is taken over.
    FinishedIsTakenOver,
    /// Rule 6: no window.
    NoWindow,
    /// Rule 3: early claims win.
    EarlyWins,
    /// Rule 7: a skip is not written.
    SkipIsForgotten,
    /// Finish and renew do not look at the token.
    StaleHolderWrites,
    /// A finish that comes twice counts twice.
    FinishCountsTwice,
    /// Rule 2: every schedule may claim.
    EveryScheduleClaims,
    /// The history grows.
    HistoryGrows,
    /// Crashes are not counted.
    CrashesDoNotCount,
    /// Rule 5: a paused job runs.
    PauseIsIgnored,
    /// A trigger that was done comes back.
    TriggerComesBack,
    /// Rule 11: a cancelled run is taken over.
    CancelIsForgotten,
    /// Rule 13: nothing is ever taken over.
    NoTakeover,
    /// Planned claims are answered as decided and are not.
    NothingIsDecided,
    /// The driver ignores the drop of a handler.
    NoDrop,
    /// Claims are for the oldest occurrence that is not decided.
    OldestFirst,
    /// One bad item fails its batch.
    BadItemFailsAll,
    /// A repeated claim wins a new attempt.
    NonceIsIgnored,
    /// Rule 1b: a claim is good however late it comes.
    NothingExpires,

    // Compare-and-swap.
    /// The server takes a write on top of whatever there is.
    NoRevisionCheck,
    /// A bucket that was made anew is taken for the one before.
    LostBucketIsTheSame,
    /// A lease ends by its `until`, whether anybody has watched it or not.
    LeaseEndsByUntil,
    /// What was stored when nobody trusted it any more counts like any lease.
    VoidIsIgnored,
    /// An order on top of what is void makes it count again.
    OrderRevivesVoid,

    // Token queue.
    /// A run shows on the mark before its award is committed.
    SignBeforeAward,
    /// An empty queue without a mark is taken for one whose token is on its way.
    BrokenBirthStays,
    /// A token that was missed twice was missed all the time, whether it could be looked for or not.
    MissesAddUp,
    /// The broker gives the token of a dead connection back long after its heartbeats.
    TokenComesBackLate,
    /// The token that a transaction replaces is not always gone.
    TwoTokens,
    /// Whoever gets the token of a run takes over, over or not.
    TakeoverBeforeUntil,
    /// What was answered as skipped while the record was out of reach is not remembered.
    SkipsAreForgotten,
}
