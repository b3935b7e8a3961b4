//! What the judge hears of an item.

use anarchon::{
    protocol::{Claim, Control, Finish, JobName, JobSpec, Record, Renewal},
    store::rabbitmq::operation::{Look, Operation},
};

use crate::{
    judge::At,
    site::{Item, Site},
};

/// One item of a call, and how the judge hears of it; a look changes nothing.
pub(crate) trait Judged: Operation {
    fn saw(self, answer: Self::Answer, before: Option<Record>, after: Option<Record>, at: At, site: &Site);
    /// The claim that it is.
    fn claim(&self) -> Option<&Claim> {
        None
    }
}

pub(super) fn note<I: Item>(
    item: I,
    job: JobName,
    answer: I::Answer,
    records: [Option<Record>; 2],
    at: At,
    site: &Site,
) {
    site.note(move |judge| {
        let [before, after] = records;
        judge.saw(item.op(&answer), &job, before.as_ref(), after.as_ref(), at);
    });
}

macro_rules! judged {
    ($($item:ty $(, $claim:ident)?;)*) => {$(
        impl Judged for $item {
            fn saw(self, answer: Self::Answer, before: Option<Record>, after: Option<Record>, at: At, site: &Site) {
                let job = self.job.clone();
                note(self, job, answer, [before, after], at, site);
            }
            $(fn $claim(&self) -> Option<&Claim> {
                Some(self)
            })?
        }
    )*};
}

judged! {
    JobSpec;
    Claim, claim;
    Renewal;
    Finish;
    Control;
}

impl Judged for Look {
    fn saw(self, _: Self::Answer, _: Option<Record>, _: Option<Record>, _: At, _: &Site) {}
}
