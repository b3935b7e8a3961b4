//! Claims a second of each store, beside what the store can do at most, in the same run.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anarchon::{
    protocol::{
        Announcement, Claim, Fingerprint, Finish, InstanceId, JobName, JobSpec, Millis, Namespace, Nonce,
        Outcome, Verdict, What,
    },
    store::Store,
};
use anarchon_tests::servers::store::backend;
use tokio::{runtime::Runtime, sync::Mutex};

use crate::{
    page::Table,
    raw::{self, Raw},
    stores::Started,
};

const HEAD: [&str; 9] = [
    "store",
    "clients",
    "claims a call",
    "the store alone, writes/s",
    "claims/s that win",
    "ratio",
    "claims/s that lose",
    "ratio",
    "written by 1,000 that lose",
];

/// Of one kind of call, before it is the turn of the next: what disturbs the machine meets all of them.
const TURN: Duration = Duration::from_millis(250);

/// Plays all of it.
pub fn play(stores: &[&'static str], seconds: usize, table: &mut Table) {
    table.head(&HEAD, 1);
    let runtime = Runtime::new().expect("a runtime");
    for store in stores {
        for clients in [1, 3, 16] {
            for batch in [1, 100] {
                let first = format!("{store} | {clients} | {batch}");
                table.play(&first, |table| {
                    let started = Started::new(store);
                    table.made_with(&started.version());
                    let speed = measure(&runtime, &started, clients, batch, seconds as f64);
                    (format!("{first} | {speed}"), ())
                });
            }
        }
    }
}

/// What each client did in its turns: items, and the seconds that it took for them itself. One that has no more to do, or whose last call
/// takes longer than those of the others, does not count as idle or as all of them.
#[derive(Default)]
pub struct Rate(Vec<(usize, f64)>);

impl Rate {
    pub fn add(&mut self, turn: &[(usize, f64)]) {
        self.0.resize(turn.len(), (0, 0.0));
        for ((items, seconds), (more, longer)) in self.0.iter_mut().zip(turn) {
            *items += more;
            *seconds += longer;
        }
    }

    /// Of the client that took longest.
    pub fn seconds(&self) -> f64 {
        self.0.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max)
    }

    /// Of all clients together: the sum of what each did in a second of its own.
    pub fn a_second(&self) -> f64 {
        self.0
            .iter()
            .filter(|(_, seconds)| *seconds > 0.0)
            .map(|(items, seconds)| *items as f64 / seconds)
            .sum()
    }
}

#[derive(Default)]
struct Speed {
    raw: Rate,
    won: Rate,
    lost: Rate,
    written: (u64, &'static str),
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [raw, won, lost] = [&self.raw, &self.won, &self.lost].map(Rate::a_second);
        let (written, what) = self.written;
        write!(f, "{raw:.0} | {won:.0} | {:.2} | {lost:.0} | {:.2} | {written} {what}", won / raw, lost / raw)
    }
}

fn measure(runtime: &Runtime, store: &Started, clients: usize, batch: usize, seconds: f64) -> Speed {
    let clients = runtime.block_on(connect(store.url(), clients, batch));
    let mut speed = Speed::default();
    while speed.won.seconds() < seconds {
        runtime.block_on(all(&clients, Turn::Begin));
        speed.raw.add(&runtime.block_on(all(&clients, Turn::Raw)));
        speed.won.add(&runtime.block_on(all(&clients, Turn::Win)));
        speed.lost.add(&runtime.block_on(all(&clients, Turn::Lose)));
        runtime.block_on(all(&clients, Turn::Finish(200)));
    }
    runtime.block_on(all(&clients, Turn::Begin));
    runtime.block_on(clients[0].take(Turn::Win));
    // A server also writes for itself now and then.
    let written = (0..3).map(|_| {
        thread::sleep(SETTLED);
        let before = store.written();
        let mut lost = 0;
        while lost < PROBED {
            lost += runtime.block_on(clients[0].take(Turn::Lose)).0;
        }
        thread::sleep(SETTLED);
        let (written, what) = store.written().since(&before);
        (written * 1000 / lost as u64, what)
    });
    speed.written = written.min().expect("there are three");
    speed
}

/// Few enough for a server not to write for itself meanwhile.
const PROBED: usize = 200;
/// What was acknowledged is in its file by then.
const SETTLED: Duration = Duration::from_millis(500);

/// What clients do at the same time, until all have done it.
#[derive(Clone, Copy)]
pub enum Turn {
    /// Shows that it is there, and looks at the store's clock for the occurrence that is claimed next.
    Begin,
    Raw,
    Win,
    /// Another one claims what was won.
    Lose,
    /// So many in a call.
    Finish(usize),
    /// Looks at its records.
    Look,
    /// Shows again and again that it is there.
    Beat,
}

pub async fn all(clients: &[Arc<Client>], turn: Turn) -> Vec<(usize, f64)> {
    let busy: Vec<_> = clients
        .iter()
        .map(|client| {
            let client = Arc::clone(client);
            tokio::spawn(async move { client.take(turn).await })
        })
        .collect();
    let mut done = Vec::new();
    for client in busy {
        done.push(client.await.expect("no panic"));
    }
    done
}

pub async fn connect(url: &str, clients: usize, batch: usize) -> Vec<Arc<Client>> {
    let namespace = Namespace::new("bench").expect("a valid name");
    let mut stores = Vec::new();
    for _ in 0..=clients {
        let store = backend(url);
        store.open(&namespace).await.expect("a store that runs");
        stores.push(store);
    }
    let mut all = Vec::new();
    for (number, pair) in stores.windows(2).enumerate() {
        let [store, other] = pair else { unreachable!("windows of two") };
        let raw = raw::connect(url, number, batch).await;
        let client = Client::new(number, batch, Arc::clone(store), Arc::clone(other), raw, url);
        client.register().await;
        all.push(Arc::new(client));
    }
    all
}

/// An instance as the store sees it: a connection, and jobs that nobody else has, so that it wins what it claims.
pub struct Client {
    store: Arc<dyn Store>,
    other: Arc<dyn Store>,
    by: InstanceId,
    jobs: Vec<JobName>,
    schedule: Fingerprint,
    batch: usize,
    sequence: AtomicU64,
    raw: Mutex<Box<dyn Raw>>,
    at: Mutex<Millis>,
    won: Mutex<Vec<Finish>>,
}

impl Client {
    fn new(
        number: usize,
        batch: usize,
        store: Arc<dyn Store>,
        other: Arc<dyn Store>,
        raw: Box<dyn Raw>,
        url: &str,
    ) -> Self {
        // Each is a queue there, which takes long to make.
        let jobs = if url.starts_with("amqp") { 100 } else { 1000 };
        let job = |i| JobName::new(&format!("job-{number:02}-{i:04}")).expect("a valid name");
        Self {
            store,
            other,
            by: InstanceId::new(&format!("bench-{number}")).expect("a valid name"),
            jobs: (0..jobs).map(job).collect(),
            schedule: Fingerprint::of("every 1 s"),
            batch,
            sequence: AtomicU64::new(0),
            raw: Mutex::new(raw),
            at: Mutex::new(Millis(0)),
            won: Mutex::default(),
        }
    }

    async fn register(&self) {
        let spec = |job: &JobName| JobSpec {
            job: job.clone(),
            schedule: self.schedule,
            by: self.by.clone(),
            replace: None,
            next: None,
        };
        for jobs in self.jobs.chunks(200) {
            let specs: Vec<JobSpec> = jobs.iter().map(spec).collect();
            // Not the last one's: a store may take a call in parts, each at its own time.
            let registered = self.store.register(&specs).await.into_iter();
            let newest = registered.map(|answer| answer.expect("it is registered").now.millis()).max();
            *self.at.lock().await = newest.expect("as many as there are jobs");
        }
    }

    /// How many items it did, and the seconds that they took.
    async fn take(&self, turn: Turn) -> (usize, f64) {
        let began = Instant::now();
        let items = match turn {
            Turn::Begin => self.begin().await,
            Turn::Raw => self.write().await,
            Turn::Win => self.win().await,
            Turn::Lose => self.lose().await,
            Turn::Finish(batch) => self.finish(batch).await,
            Turn::Look => self.look().await,
            Turn::Beat => self.beat().await,
        };
        (items, began.elapsed().as_secs_f64())
    }

    async fn begin(&self) -> usize {
        for store in [&self.store, &self.other] {
            // One that has no announcements says so.
            let _ = store.beat(&present(self.by.clone())).await;
        }
        let mut at = self.at.lock().await;
        let last = *at;
        while *at <= last {
            let look = self.store.inspect(&self.jobs[..1], 0).await.remove(0);
            // Where the clock is an estimate, it is surely that late.
            *at = Millis(look.expect("an answer").now.millis().0 - 100);
        }
        0
    }

    async fn write(&self) -> usize {
        let (mut raw, mut written) = (self.raw.lock().await, 0);
        let began = Instant::now();
        while began.elapsed() < TURN {
            let names: Vec<String> =
                (0..self.batch).map(|_| format!("{}-{}", self.by, self.next())).collect();
            written += raw.write(&names).await;
        }
        written
    }

    async fn win(&self) -> usize {
        let mut won = self.won.lock().await;
        let began = Instant::now();
        for jobs in self.jobs.chunks(self.batch) {
            if began.elapsed() >= TURN {
                break;
            }
            let answers = self.store.claim(&self.claims(jobs).await).await;
            for (job, answer) in jobs.iter().zip(answers) {
                let Verdict::Awarded(award) = answer.expect("an answer").value else {
                    panic!("nobody else claims {job}")
                };
                let job = job.clone();
                won.push(Finish { job, token: award.token, outcome: Outcome::Succeeded, message: None });
            }
        }
        won.len()
    }

    async fn lose(&self) -> usize {
        let jobs: Vec<JobName> = self.won.lock().await.iter().map(|won| won.job.clone()).collect();
        let (mut lost, began) = (0, Instant::now());
        for jobs in jobs.chunks(self.batch) {
            if began.elapsed() >= TURN {
                break;
            }
            for answer in self.other.claim(&self.claims(jobs).await).await {
                let verdict = answer.expect("an answer").value;
                assert!(!matches!(verdict, Verdict::Awarded(_)), "it was awarded to another one");
                lost += 1;
            }
        }
        lost
    }

    async fn look(&self) -> usize {
        let (mut looked, began) = (0, Instant::now());
        for jobs in self.jobs.chunks(self.batch).cycle() {
            if began.elapsed() >= TURN {
                break;
            }
            for answer in self.store.inspect(jobs, 0).await {
                answer.expect("an answer");
                looked += 1;
            }
        }
        looked
    }

    async fn beat(&self) -> usize {
        let (mut beats, began) = (0, Instant::now());
        while began.elapsed() < TURN {
            self.store.beat(&present(self.by.clone())).await.expect("an answer");
            beats += 1;
        }
        beats
    }

    /// Announces so many others.
    pub async fn crowd(&self, others: usize) {
        for other in 0..others {
            let name = InstanceId::new(&format!("bench-other-{other:05}")).expect("a valid name");
            self.store.beat(&present(name)).await.expect("an answer");
        }
    }

    async fn finish(&self, batch: usize) -> usize {
        let won = std::mem::take(&mut *self.won.lock().await);
        for finishes in won.chunks(batch) {
            for answer in self.store.finish(finishes).await {
                answer.expect("an answer");
            }
        }
        won.len()
    }

    async fn claims(&self, jobs: &[JobName]) -> Vec<Claim> {
        let at = *self.at.lock().await;
        let claim = |job: &JobName| Claim {
            job: job.clone(),
            what: What::Planned(at),
            lease: Duration::from_secs(30),
            window: Duration::from_secs(300),
            max_attempts: 3,
            schedule: self.schedule,
            holder: self.by.clone(),
            nonce: Nonce { instance: 1, seq: self.next() },
            next: None,
            expires: Millis::MAX,
        };
        jobs.iter().map(claim).collect()
    }

    fn next(&self) -> u64 {
        self.sequence.fetch_add(1, Relaxed)
    }
}

fn present(instance: InstanceId) -> Announcement {
    Announcement::Present {
        instance,
        schedules: Default::default(),
        zones: String::new(),
        contested: Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_counts_with_its_own_time() {
        let mut rate = Rate::default();
        rate.add(&[(100, 0.5), (100, 0.25)]);
        rate.add(&[(100, 0.5), (300, 0.75)]);
        assert_eq!(rate.a_second(), 200.0 + 400.0);
        assert_eq!(rate.seconds(), 1.0);
    }
}
