//! One process of the tests of the SQLite store.
//!
//! `race URL GATE JOBS`: opens and registers, waits for the file GATE, claims one occurrence of each job, and prints the
//! jobs it won. `storm URL JOBS`: claims and finishes without end, and prints each token it was awarded.
//! `clock URL SECONDS`: asks for the store's time every 100 ms, and prints how far it is from this process's own, in ms.
//! `limited URL BYTES`: registers job after job until files may not grow further, prints the error, and
//! then one line more when calls work again under the old limit.

use std::{error::Error, io::Write as _, path::Path, time::Duration};

use anarchon::{
    clock::{Clock as _, SystemClock},
    protocol::{
        Announcement, Claim, Fingerprint, Finish, InstanceId, JobName, JobSpec, Millis, Namespace, Nonce,
        Outcome, Verdict, What,
    },
    store::{SqliteBackend, Store as _},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[1..] {
        ["race", url, gate, jobs] => race(url, Path::new(gate), jobs.parse()?).await,
        ["storm", url, jobs] => storm(url, jobs.parse()?).await,
        ["clock", url, seconds] => clock(url, seconds.parse()?).await,
        ["limited", url, bytes] => limited(url, bytes.parse()?).await,
        _ => Err("usage: see the source".into()),
    }
}

async fn open(url: &str) -> Result<SqliteBackend, Box<dyn Error>> {
    let store = SqliteBackend::connect(url)?;
    store.open(&Namespace::new("peers")?).await?;
    Ok(store)
}

fn names(jobs: u32) -> Result<Vec<JobName>, Box<dyn Error>> {
    (0..jobs).map(|i| Ok(JobName::new(&format!("job-{i:04}"))?)).collect()
}

fn spec(job: &JobName) -> Result<JobSpec, Box<dyn Error>> {
    let (schedule, by) = (Fingerprint::of("every 1 s"), me()?);
    Ok(JobSpec { job: job.clone(), schedule, by, replace: None, next: None })
}

fn me() -> Result<InstanceId, Box<dyn Error>> {
    Ok(InstanceId::new(&format!("peer-{}", std::process::id()))?)
}

fn planned(job: &JobName, at: Millis, seq: u64) -> Result<Claim, Box<dyn Error>> {
    Ok(Claim {
        job: job.clone(),
        what: What::Planned(at),
        lease: Duration::from_secs(30),
        window: Duration::from_secs(300),
        max_attempts: 3,
        schedule: Fingerprint::of("every 1 s"),
        holder: me()?,
        nonce: Nonce { instance: u64::from(std::process::id()), seq },
        next: None,
        expires: Millis::MAX,
    })
}

async fn race(url: &str, gate: &Path, jobs: u32) -> Result<(), Box<dyn Error>> {
    let store = open(url).await?;
    let names = names(jobs)?;
    let specs = names.iter().map(spec).collect::<Result<Vec<_>, _>>()?;
    for answer in store.register(&specs).await {
        answer?;
    }
    println!("ready");
    std::io::stdout().flush()?;
    while !gate.exists() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let at = Millis(std::fs::read_to_string(gate)?.trim().parse()?);
    let claims = names.iter().map(|job| planned(job, at, 1)).collect::<Result<Vec<_>, _>>()?;
    for (job, answer) in names.iter().zip(store.claim(&claims).await) {
        match answer?.value {
            Verdict::Awarded(_) => println!("won {job}"),
            Verdict::AlreadyDecided(_) => {}
            other => return Err(format!("{job}: {other:?}").into()),
        }
    }
    Ok(())
}

async fn storm(url: &str, jobs: u32) -> Result<(), Box<dyn Error>> {
    let store = open(url).await?;
    let names = names(jobs)?;
    let specs = names.iter().map(spec).collect::<Result<Vec<_>, _>>()?;
    let mut at = Millis(0);
    for answer in store.register(&specs).await {
        at = at.max(answer?.now.millis());
    }
    let mut held = Vec::new();
    for seq in 1.. {
        let last = at;
        while at <= last {
            at = store.inspect(&names[..1], 0).await.remove(0)?.now.millis();
        }
        let claims = names.iter().map(|job| planned(job, at, seq)).collect::<Result<Vec<_>, _>>()?;
        for (job, answer) in names.iter().zip(store.claim(&claims).await) {
            if let Verdict::Awarded(award) = answer?.value {
                println!("{job} {}", award.token);
                let (job, token, outcome) = (job.clone(), award.token, Outcome::Succeeded);
                held.push(Finish { job, token, outcome, message: None });
            }
        }
        std::io::stdout().flush()?;
        for answer in store.finish(&held).await {
            answer?;
        }
        held.clear();
    }
    Ok(())
}

async fn clock(url: &str, seconds: u32) -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).without_time().with_ansi(false).init();
    let store = open(url).await?;
    for i in 0..seconds * 10 {
        if i % 50 == 0 {
            let here = Announcement::Present {
                instance: me()?,
                schedules: vec![],
                zones: String::new(),
                contested: vec![],
            };
            store.beat(&here).await?;
        }
        let now = store.inspect(&names(1)?, 0).await.remove(0)?.now;
        println!("{}", (now.0 - SystemClock.wall_micros()) / 1_000);
        std::io::stdout().flush()?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn limited(url: &str, bytes: u64) -> Result<(), Box<dyn Error>> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // Without a handler the kernel ends a process that writes past the limit.
    let _kept = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::from_raw(25))?;
    let store = open(url).await?;
    let before = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(bytes), maximum: before.maximum })?;
    let names = names(100_000)?;
    for job in &names {
        if let Err(error) = store.register(&[spec(job)?]).await.remove(0) {
            println!("{:?} {error}", error.kind);
            setrlimit(Resource::Fsize, before)?;
            store.register(&[spec(job)?]).await.remove(0)?;
            println!("works again");
            return Ok(());
        }
    }
    Err("the limit was never met".into())
}
