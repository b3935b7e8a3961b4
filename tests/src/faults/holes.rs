//! A hole in the network between a holder and its server, which others reach.

use std::{path::Path, time::Duration};

use super::{SLACK, mono, once, secs, wall_ms};
use crate::{
    deeds::What,
    history::Run,
    process::{Orders, Worker},
    proxy::Mode,
    servers::store::{Proxied, ServerStore},
    site::Site,
    wait::until_so,
};

/// The holder ends its run in time, another one takes it over within that time of the cut, and the first one works again
/// when the network does.
///
/// # Panics
/// When it is not so.
pub fn a_holder_cut_off_for_five_leases_ends_its_run_and_another_goes_on(
    program: &Path,
    store: ServerStore,
    within: Duration,
) {
    let (store, proxy) = Proxied::new(store, 1);
    let site = Site::new(program, |_| Box::new(store));
    let (schedule, _) = once(secs(3));
    let orders = Orders::new([
        format!("long,{schedule},run=15s,step=50ms,lease=5s,catch_up=60s"),
        "tick,every=2s,lease=5s".to_owned(),
    ]);
    let holder = site.start(&orders);
    let first = site.run("long", "is in full swing", |run| run.steps >= 5);
    assert_eq!(first.start.pid, holder.pid());
    let other = site.start(&orders);
    until_so("the other one is there", || other.has_started());
    site.deeds().note(What::Cut(holder.pid()));
    proxy.set(Mode::Hole);
    let (cut, cut_ms) = (mono(), wall_ms());
    let second = site.run("long", "is a further attempt", Run::is_further);
    assert_eq!((second.start.pid, second.start.nominal), (other.pid(), first.start.nominal));
    let after = second.start.mono.since(cut);
    println!("taken over {after:?} after the cut, with leases of 5 s");
    assert!(after <= within + SLACK, "taken over {after:?} after the cut");
    until_so("five leases are over", || mono() >= cut.plus(secs(25)));
    let ended = site.run("long", "is the first attempt", |run| run.start.token == first.start.token);
    let outlived = ended.last.mono.since(cut);
    assert!(ended.dropped, "it was not dropped");
    assert!(outlived <= Duration::from_millis(4250) + secs(1), "it went on for {outlived:?}");
    proxy.set(Mode::Pass);
    site.deeds().note(What::Heal(holder.pid()));
    let healed = mono();
    let back = |run: &Run| run.start.pid == holder.pid() && run.start.mono > healed;
    site.run("tick", "is of the process that was cut off", back);
    let meanwhile = |run: &Run| run.start.nominal > cut_ms && run.start.mono < healed;
    assert!(site.history().runs("tick").iter().any(meanwhile));
    site.run("long", "has ended well", |run| run.is_further() && run.is_done());
    let mut workers = vec![holder, other];
    assert!(!workers.iter_mut().any(Worker::has_ended));
    drop(workers);
    site.verify();
}
