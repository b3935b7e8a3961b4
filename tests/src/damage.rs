//! Damaged and foreign records beside good ones: each may cost its own job, and no other.

use anarchon::{
    Context, Scheduler,
    protocol::{Control, ControlAction},
    store::StoreErrorKind,
};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::timeout,
};

use crate::{
    calls::{job, ns},
    servers::store::backend,
    wait::{PATIENCE, repeated},
};

/// What is written over the record of a job.
#[derive(Clone)]
pub enum Damage {
    /// It cannot be a record: calls for the job tell so.
    Told(String),
    /// It is a record with numbers that ours never get near. What becomes of its job is open.
    Borne(String),
}

/// In a damage: the fingerprint of the schedule of all jobs.
pub const SCHEDULE: &str = "SCHEDULE";

impl std::fmt::Debug for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.200}", self.text().escape_debug().to_string())
    }
}

impl Damage {
    fn text(&self) -> &str {
        match self {
            Self::Told(text) | Self::Borne(text) => text,
        }
    }
}

/// Starts a scheduler on the store with a job for each damage and a good one, and writes the damages over the records by the
/// store's own means. The good job goes on; each damage is one clear error that names the job and the mend; after the mend the
/// job runs again.
///
/// # Panics
/// When it is not so.
pub async fn costs_its_own_job_alone(url: &str, damages: &[Damage], mut write: impl AsyncFnMut(&str, &str)) {
    // None is the beginning of another.
    let named = |n: usize| format!("bad-{n}-");
    let (sender, mut ran) = unbounded_channel();
    let mut scheduler = Scheduler::connect(url).expect("a valid URL").namespace(ns().as_str());
    for name in (0..damages.len()).map(named).chain(["good".to_owned()]) {
        let sender = sender.clone();
        scheduler = scheduler.every(&name, "1s", move |ctx: Context| {
            let _ = sender.send(ctx.job().to_owned());
            async {}
        });
    }
    let running = scheduler.start().await.expect("it starts");
    let store = backend(url);
    store.open(&ns()).await.expect("it opens");
    for n in 0..damages.len() {
        has_run(&mut ran, &named(n)).await;
    }
    let good = store.inspect(&[job("good")], 0).await.remove(0).expect("it is there");
    let schedule = good.value.expect("it is registered").record.schedule.to_string();
    let mut told = Vec::new();
    for (n, damage) in damages.iter().enumerate() {
        write(&named(n), &damage.text().replace(SCHEDULE, &schedule)).await;
        if matches!(damage, Damage::Told(_)) {
            told.push((n, job(&named(n))));
        }
    }
    for (n, name) in &told {
        let damage = &damages[*n];
        let error = repeated(&format!("{damage:?} is told"), async || {
            store.inspect(std::slice::from_ref(name), 20).await.remove(0).err()
        })
        .await;
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{damage:?}: {error}");
        let text = error.to_string();
        assert!(text.contains(name.as_str()) && text.contains("forget"), "{damage:?}: {text}");
        assert!(text.len() < 1000 && !text.contains(char::is_control), "{damage:?}: {text}");
    }
    while ran.try_recv().is_ok() {}
    for _ in 0..3 {
        has_run(&mut ran, "good").await;
    }
    for (n, name) in &told {
        let answer = store.inspect(std::slice::from_ref(name), 0).await.remove(0);
        assert!(answer.is_err(), "{:?} was overwritten: {answer:?}", damages[*n]);
    }
    for (n, damage) in damages.iter().enumerate() {
        let forget = Control { job: job(&named(n)), action: ControlAction::Forget };
        repeated(&format!("{damage:?} is forgotten"), async || {
            store.control(std::slice::from_ref(&forget)).await.remove(0).ok()
        })
        .await;
    }
    while ran.try_recv().is_ok() {}
    let mut waits: Vec<String> = (0..damages.len()).map(named).collect();
    while !waits.is_empty() {
        let name =
            timeout(PATIENCE, ran.recv()).await.unwrap_or_else(|_| panic!("{waits:?} do not run again"));
        waits.retain(|wait| Some(wait) != name.as_ref());
    }
    running.shutdown().await.expect("it ends");
    store.close().await;
}

async fn has_run(ran: &mut UnboundedReceiver<String>, name: &str) {
    let run = async { while ran.recv().await.as_deref() != Some(name) {} };
    timeout(PATIENCE, run).await.unwrap_or_else(|_| panic!("{name} did not run"));
}

/// Damages of a record that is kept as JSON.
#[must_use]
pub fn of_json() -> Vec<Damage> {
    let told = [
        String::new(),
        "hello".to_owned(),
        "null".to_owned(),
        "\u{0}\u{1b}[31m".to_owned(),
        "[".repeat(100_000),
        "x".repeat(900_000),
        record("token", json!(-1)),
        record("token", json!(1.5)),
        record("token", json!("x".repeat(900_000))),
        record("attempt", json!(4_294_967_296_u64)),
        record("decided", json!(u64::MAX)),
        record("status", json!("asleep")),
        record("holder", json!("no name")),
        record("occurrence", json!("planned:99999999999999999999")),
        record("nonce", Value::Null),
        record("cancel", json!([1])),
        record("token", json!(1)).split_at(120).0.to_owned(),
    ];
    let borne = [
        record("token", json!(u64::MAX)),
        record("until", json!(i64::MIN)),
        record("until", json!(i64::MAX)),
        record("decided", json!(i64::MIN)),
        record("decided", json!(i64::MAX)),
        record("runs", json!(u64::MAX)),
        record("manual_asked", json!(u64::MAX)),
        record("occurrence", json!(format!("planned:{}", i64::MIN))),
    ];
    told.map(Damage::Told).into_iter().chain(borne.map(Damage::Borne)).collect()
}

/// A record in the form of today but for one field.
fn record(field: &str, value: Value) -> String {
    let mut text = json!({
        "form": 1, "birth": 1, "lease_us": 30_000_000, "write": 1, "runs": [],
        "record": {
            "decided": 1, "occurrence": "planned:1", "status": "running", "attempt": 1, "crashes": 0, "errors": 0, "started": 1,
            "until": 1, "token": 1, "holder": "a", "nonce": "00000000000000010000000000000002", "paused": false,
            "cancel": null, "manual_asked": 0, "manual_done": 0, "schedule": SCHEDULE, "runs": 0,
        },
    });
    let place = if field == "form" { &mut text[field] } else { &mut text["record"][field] };
    *place = value;
    text.to_string()
}
