//! Redis and Valkey: the rules as Lua scripts, which a server carries out one after the other.

mod address;
mod fault;
mod link;
mod reply;
mod script;
mod servers;
mod settings;

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;

use self::{
    address::{Address, Kind},
    reply::{Damage, Reply},
    script::{Call, Script},
    servers::{Servers, Wait},
    settings::Options,
};
use super::{Answer, Guarantees, Snapshot, Stamped, Store, StoreError};
use crate::{
    error::{Error, ErrorKind},
    protocol::{
        Announcement, Award, Claim, Control, ControlAction, Controlled, Fingerprint, Finish, Finished,
        InstanceId, JobName, JobSpec, Members, Millis, Namespace, Outcome, Registered, Renewal, Renewed,
        Verdict, What,
    },
};

/// How many runs of a job are kept; `record.lua` knows the number as well.
const HISTORY: u8 = 20;

macro_rules! backend {
    ($(#[$doc:meta])* $name:ident, $schemes:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $name(Shared);

        impl $name {
            /// The servers that a URL names.
            ///
            /// Only looks at the URL; connections are made by [`Store::open`], on the runtime that calls it.
            ///
            /// # Errors
            /// When the URL is none of those above.
            pub fn connect(url: &str) -> crate::Result<Self> {
                Address::parse(url, $schemes).map(Shared::new).map(Self).map_err(wrong)
            }

            /// The server of a client of the application.
            ///
            /// The client is only read for its settings, TLS and login among them: the store opens connections of its own.
            /// Clients of a Cluster or of sentinels do not tell their settings: name those by URL.
            #[must_use]
            pub fn from_client(client: &redis::Client) -> Self {
                Self(Shared::new(Address::given(client)))
            }

            /// Starts a run only once so many replicas have its claim, and trusts a renewal only then; 0 if not set.
            ///
            /// Each batch of claims or renewals then ends with `WAIT`, for at most a tenth of the shortest lease in it. Too few
            /// replicas in that time: the call counts as unanswered and is repeated, and a run that gets no renewal is
            /// cancelled at 0.7 of its lease. With as many as there are replicas, a fail-over to any of them loses no lease.
            #[must_use]
            pub fn wait_replicas(mut self, replicas: u32) -> Self {
                self.0.options.replicas = replicas;
                self
            }

            /// Opens also where the server deletes keys when memory runs out (`maxmemory-policy allkeys-*`).
            ///
            /// What it deletes is forgotten: leases and decided occurrences too, so that jobs run twice. Set `noeviction`, or
            /// one of `volatile-*` (our keys do not expire), rather than this.
            #[must_use]
            pub fn allow_eviction(mut self) -> Self {
                self.0.options.allows_eviction = true;
                self
            }
        }

        #[async_trait]
        impl Store for $name {
            async fn open(&self, namespace: &Namespace) -> Result<Guarantees, StoreError> {
                self.0.open(namespace).await
            }
            async fn register(&self, specs: &[JobSpec]) -> Vec<Answer<Registered>> {
                self.0.register(specs).await
            }
            async fn claim(&self, claims: &[Claim]) -> Vec<Answer<Verdict>> {
                self.0.claim(claims).await
            }
            async fn renew(&self, renewals: &[Renewal]) -> Vec<Answer<Renewed>> {
                self.0.renew(renewals).await
            }
            async fn finish(&self, finishes: &[Finish]) -> Vec<Answer<Finished>> {
                self.0.finish(finishes).await
            }
            async fn inspect(&self, jobs: &[JobName], history: u8) -> Vec<Answer<Option<Snapshot>>> {
                self.0.inspect(jobs, history).await
            }
            async fn control(&self, controls: &[Control]) -> Vec<Answer<Controlled>> {
                self.0.control(controls).await
            }
            async fn beat(&self, announcement: &Announcement) -> Answer<Members> {
                self.0.beat(announcement).await
            }
            async fn close(&self) {
                self.0.servers.close();
            }
            fn describe(&self) -> String {
                self.0.address.to_string()
            }
        }
    };
}

backend! {
    /// Keeps the records in Redis 6.2 or later: one server, a Cluster, or a primary found by sentinels.
    ///
    /// | URL | servers |
    /// | --- | --- |
    /// | `redis://user:password@host:6379/0` | one; the number is that of the database |
    /// | `redis+sentinel://host1:26379,host2:26379/mymaster/0` | the primary of that name; user and password are the servers', those of the sentinels are the parameters `sentinel_user` and `sentinel_password` |
    /// | `redis+cluster://host1:6379,host2:6379` | a Cluster; some of its nodes are enough. While a slot moves, calls for its jobs may be unavailable |
    /// | `rediss://`, `rediss+sentinel://`, `rediss+cluster://` | the same over TLS |
    ///
    /// Parts that hold other characters than letters and digits are percent-encoded. Parameters for TLS: `ca=FILE` (who signed the server's
    /// certificate; else whom the system trusts), `cert=FILE&key=FILE` (our certificate). For a proxy that does not speak RESP3:
    /// `protocol=resp2`.
    ///
    /// ```
    /// use anarchon::RedisBackend;
    ///
    /// let store = RedisBackend::connect("redis://localhost:6379")?.wait_replicas(1);
    /// # Ok::<(), anarchon::Error>(())
    /// ```
    ///
    /// One connection an instance, which all calls share and which comes back by itself; in a Cluster one for each node that
    /// takes writes. A clone is another handle with the same connections.
    ///
    /// # Guarantees
    ///
    /// - **The server decides, by its clock.** Each item of a call is one Lua script for one job. Clocks of instances do not
    ///   matter. In a Cluster each node has its own: keep them in step, as a job is as early or late as the clock of its node,
    ///   and after a fail-over its leases are judged by another one.
    /// - **What survives a crash of the server is up to its settings**, and told at start: with `appendonly yes` and
    ///   `appendfsync always` everything; with `everysec` all but the last second or two; with snapshots, or with nothing on
    ///   disk, less or nothing. Whoever lost records registers the jobs again, and nothing from before that moment runs; but a
    ///   run in flight may be started a second time.
    /// - **A fail-over can lose claims.** Replicas are asynchronous: a replica that takes over lacks the last writes. A claim among them is
    ///   awarded again, so that two handlers run at once until the first one's next renewal; a lost finish repeats a run that had
    ///   ended. `wait_replicas(n)` with all replicas closes it for claims and renewals, not for finishes. The fencing tokens of
    ///   the two runs differ: the later award has the higher one, as far as the two servers' clocks agree.
    /// - **A primary that was frozen or cut off and has been replaced believes to be one until it is told**: 10 to 20 s
    ///   behind sentinels, a moment in a Cluster, as long as the network is split for whoever is on its side. An instance that
    ///   called it meanwhile without an answer has dropped its connection and found the new one. One that made no call in that
    ///   time (an idle one makes some every 5 s) still asks the old one, and may be awarded an occurrence, or granted a renewal,
    ///   while another instance has the job by the new one; its first renewal by the new one ends such a run. With
    ///   `wait_replicas(n)` with all replicas the old primary grants nothing: the one that was promoted no longer follows it.
    ///   `min-replicas-to-write` on the server has nearly the same effect, but only once the primary has noticed
    ///   (`min-replicas-max-lag`).
    /// - **Eviction** loses records at any time: a `maxmemory-policy` of `allkeys-*` is refused.
    /// - **Constant size.** A text of 18 words a job, without expiry, and a hash with its 20 newest runs.
    /// - The user needs the rights that the page [security](crate::guide::security) of the guide has, for one namespace or, with
    ///   `~anarchon:*`, for all.
    RedisBackend, ["redis", "rediss"]
}

backend! {
    /// Keeps the records in Valkey: [`RedisBackend`] by another name, with `valkey` in place of `redis` in its URLs.
    ///
    /// ```
    /// use anarchon::ValkeyBackend;
    ///
    /// let store = ValkeyBackend::connect("valkey+sentinel://one,two,three/mymaster")?;
    /// # Ok::<(), anarchon::Error>(())
    /// ```
    ///
    /// # Guarantees
    ///
    /// Those of [`RedisBackend`], word for word: the same scripts run on both.
    ValkeyBackend, ["valkey", "valkeys"]
}

/// What both are.
struct Shared {
    address: Arc<Address>,
    servers: Arc<Servers>,
    options: Options,
    namespace: RwLock<Option<Namespace>>,
}

impl Shared {
    fn new(address: Address) -> Self {
        let address = Arc::new(address);
        let servers = Arc::new(Servers::new(&address));
        Self { address, servers, options: Options::default(), namespace: RwLock::new(None) }
    }

    async fn open(&self, namespace: &Namespace) -> Result<Guarantees, StoreError> {
        let primaries = self.servers.primaries().await?;
        let is_cluster = self.address.kind == Kind::Cluster;
        let by_sentinels = matches!(self.address.kind, Kind::Sentinel(_));
        let mut guarantees = settings::read(&primaries, self.options, is_cluster, by_sentinels).await?;
        guarantees.history = HISTORY;
        // Shows what the user may not do, before there is a job to lose.
        let calls = [Call { keys: record_keys(namespace, "."), arguments: vec!["0".to_owned()] }];
        for answer in self.servers.run(&script::INSPECT, &calls, None).await {
            answer.map_err(|error| match error.kind {
                super::StoreErrorKind::Unknown => StoreError::unavailable(error),
                super::StoreErrorKind::Unavailable | super::StoreErrorKind::Misconfigured => error,
            })?;
        }
        *self.namespace.write().unwrap_or_else(PoisonError::into_inner) = Some(namespace.clone());
        Ok(guarantees)
    }

    fn namespace(&self) -> Result<Namespace, StoreError> {
        let kept = self.namespace.read().unwrap_or_else(PoisonError::into_inner);
        kept.clone().ok_or_else(|| {
            StoreError::misconfigured(format_args!(
                "{} was used before it was opened; call open first",
                self.address
            ))
        })
    }

    /// Runs a script for each item, and reads the replies.
    async fn batch<I: Sync, T: Send>(&self, items: &[I], operation: Operation<'_, I, T>) -> Vec<Answer<T>> {
        let namespace = match self.namespace() {
            Ok(namespace) => namespace,
            Err(error) => return items.iter().map(|_| Err(error.clone())).collect(),
        };
        if items.is_empty() {
            return Vec::new();
        }
        let call = |item: &I| Call {
            keys: record_keys(&namespace, (operation.job)(item).as_str()),
            arguments: (operation.arguments)(item),
        };
        let calls: Vec<Call> = items.iter().map(call).collect();
        let replies = self.servers.run(operation.script, &calls, operation.wait).await;
        let read = |(item, reply): (&I, Result<Reply, StoreError>)| {
            let reply = reply?;
            if reply.word == "damaged" {
                return Err(self.damaged(&namespace, (operation.job)(item), &reply));
            }
            let value = (operation.read)(&reply)
                .map_err(|damage| self.unreadable(&namespace, (operation.job)(item), &damage))?;
            self.check_replicas(&reply, operation.wait)?;
            Ok(reply.stamp(value))
        };
        items.iter().zip(replies).map(read).collect()
    }

    /// What to wait for behind claims or renewals of these leases.
    fn wait(&self, leases: impl Iterator<Item = Duration>) -> Option<Wait> {
        let replicas = self.options.replicas;
        leases.min().filter(|_| replicas > 0).map(|lease| Wait { replicas, timeout: lease / 10 })
    }

    /// A lease that a fail-over may lose was not granted yet.
    fn check_replicas(&self, reply: &Reply, wait: Option<Wait>) -> Result<(), StoreError> {
        match wait {
            Some(Wait { replicas, .. })
                if matches!(reply.word.as_str(), "awarded" | "extended")
                    && reply.replicas < Some(replicas.into()) =>
            {
                let have = reply.replicas.map_or("an unknown number of".to_owned(), |have| have.to_string());
                Err(StoreError::unknown(format_args!(
                    "{have} of {replicas} replicas of {} have the lease; bring the replicas back, or wait for fewer",
                    self.address
                )))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn damaged(&self, namespace: &Namespace, job: &JobName, reply: &Reply) -> StoreError {
        let why = reply.rest.first().map_or("it cannot be read", String::as_str);
        self.unreadable(namespace, job, why)
    }

    fn unreadable(&self, namespace: &Namespace, job: &JobName, why: &str) -> StoreError {
        let record =
            format_args!("the record of job \"{job}\" in namespace \"{namespace}\" of {}", self.address);
        super::damage::unreadable(record, why)
    }

    async fn register(&self, specs: &[JobSpec]) -> Vec<Answer<Registered>> {
        let operation = Operation {
            script: &script::REGISTER,
            job: |spec: &JobSpec| &spec.job,
            arguments: &|spec| {
                let (old, since) = match spec.replace {
                    Some(replace) => (replace.old.to_string(), replace.since),
                    None => (String::new(), Millis(0)),
                };
                vec![spec.schedule.to_string(), spec.by.to_string(), old, since.0.to_string()]
            },
            read: |reply| {
                let record = reply.record()?;
                match reply.word.as_str() {
                    "created" => Ok(Registered::Created(record)),
                    "in-force" => Ok(Registered::InForce(record)),
                    "stale" => Ok(Registered::Stale(record)),
                    word => Err(unknown(word)),
                }
            },
            wait: None,
        };
        self.batch(specs, operation).await
    }

    async fn claim(&self, claims: &[Claim]) -> Vec<Answer<Verdict>> {
        let wait = self.wait(claims.iter().map(|claim| claim.lease));
        let waits = if wait.is_some() { "1" } else { "0" };
        let operation = Operation {
            script: &script::CLAIM,
            job: |claim: &Claim| &claim.job,
            arguments: &|claim| {
                let (what, which, observed) = match claim.what {
                    What::Planned(at) => ("planned", at.0.to_string(), String::new()),
                    What::Takeover { token, observed } => (
                        "takeover",
                        token.to_string(),
                        observed.map_or_else(String::new, |until| until.0.to_string()),
                    ),
                    What::Manual(seq) => ("manual", seq.to_string(), String::new()),
                };
                vec![
                    claim.nonce.to_string(),
                    claim.schedule.to_string(),
                    what.to_owned(),
                    which,
                    observed,
                    micros(claim.lease),
                    whole_millis(claim.window),
                    claim.window.as_micros().min(LONGEST).to_string(),
                    claim.max_attempts.to_string(),
                    claim.holder.to_string(),
                    waits.to_owned(),
                    claim.expires.0.to_string(),
                ]
            },
            read: |reply| {
                Ok(match reply.word.as_str() {
                    "awarded" => Verdict::Awarded(Award::from(&reply.record()?)),
                    "already-done" => Verdict::AlreadyDone(reply.record()?),
                    "expired" => Verdict::Expired,
                    "stale" => Verdict::Stale { schedule: reply.record()?.schedule },
                    "early" => Verdict::Early,
                    "already-decided" => Verdict::AlreadyDecided(reply.record()?),
                    "paused" => Verdict::Paused(reply.record()?),
                    "missed" => Verdict::Missed,
                    "skipped" => Verdict::Skipped(reply.record()?),
                    "held" => Verdict::Held(reply.record()?),
                    "gave-up" => Verdict::GaveUp(reply.record()?),
                    "unregistered" => Verdict::Unregistered,
                    word => return Err(unknown(word)),
                })
            },
            wait,
        };
        self.batch(claims, operation).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Vec<Answer<Renewed>> {
        let operation = Operation {
            script: &script::RENEW,
            job: |renewal: &Renewal| &renewal.job,
            arguments: &|renewal| vec![renewal.token.to_string(), micros(renewal.lease)],
            read: |reply| match reply.word.as_str() {
                "extended" => {
                    let record = reply.record()?;
                    Ok(Renewed::Extended { until: record.until, cancel: record.cancel == Some(record.token) })
                }
                "lost" => Ok(Renewed::Lost),
                word => Err(unknown(word)),
            },
            wait: self.wait(renewals.iter().map(|renewal| renewal.lease)),
        };
        self.batch(renewals, operation).await
    }

    async fn finish(&self, finishes: &[Finish]) -> Vec<Answer<Finished>> {
        let operation = Operation {
            script: &script::FINISH,
            job: |finish: &Finish| &finish.job,
            arguments: &|finish| {
                let (outcome, after) = match finish.outcome {
                    Outcome::Succeeded => ("succeeded", Duration::ZERO),
                    Outcome::Failed => ("failed", Duration::ZERO),
                    Outcome::Cancelled => ("cancelled", Duration::ZERO),
                    Outcome::Retry(after) => ("retrying", after),
                    Outcome::Released => ("released", Duration::ZERO),
                };
                let message =
                    finish.message.as_ref().map_or_else(|| "-".to_owned(), |message| format!("+{message}"));
                vec![finish.token.to_string(), outcome.to_owned(), micros(after), message]
            },
            read: |reply| match reply.word.as_str() {
                "closed" => Ok(Finished::Closed(reply.record()?)),
                "refused" => Ok(Finished::Refused),
                word => Err(unknown(word)),
            },
            wait: None,
        };
        self.batch(finishes, operation).await
    }

    async fn inspect(&self, jobs: &[JobName], history: u8) -> Vec<Answer<Option<Snapshot>>> {
        let most = history.to_string();
        let operation = Operation {
            script: &script::INSPECT,
            job: |job: &JobName| job,
            arguments: &|_| vec![most.clone()],
            read: |reply| match reply.word.as_str() {
                "none" => Ok(None),
                "record" => {
                    let readable = reply.runs().filter_map(|run| match run {
                        Ok(run) => Some(run),
                        // A lost line of history is no reason to withhold the record.
                        Err(damage) => {
                            tracing::warn!(damage, "skipped a damaged run in the history");
                            None
                        }
                    });
                    Ok(Some(Snapshot { record: reply.record()?, history: readable.collect() }))
                }
                word => Err(unknown(word)),
            },
            wait: None,
        };
        self.batch(jobs, operation).await
    }

    async fn control(&self, controls: &[Control]) -> Vec<Answer<Controlled>> {
        let operation = Operation {
            script: &script::CONTROL,
            job: |control: &Control| &control.job,
            arguments: &|control| {
                let (action, token) = match control.action {
                    ControlAction::Trigger => ("trigger", String::new()),
                    ControlAction::Pause => ("pause", String::new()),
                    ControlAction::Resume => ("resume", String::new()),
                    ControlAction::Cancel(token) => ("cancel", token.to_string()),
                    ControlAction::Forget => ("forget", String::new()),
                };
                vec![action.to_owned(), token]
            },
            read: |reply| match reply.word.as_str() {
                "done" => Ok(Controlled::Done),
                "no-such-run" => Ok(Controlled::NoSuchRun),
                "unregistered" => Ok(Controlled::Unregistered),
                word => Err(unknown(word)),
            },
            wait: None,
        };
        self.batch(controls, operation).await
    }

    async fn beat(&self, announcement: &Announcement) -> Answer<Members> {
        let namespace = self.namespace()?;
        let (me, contested) = match announcement {
            Announcement::Present { instance, contested, .. } => (instance, &contested[..]),
            Announcement::Withdrawn { instance } => (instance, &[][..]),
        };
        let mut arguments = vec![me.to_string()];
        match announcement {
            Announcement::Present { schedules, zones, .. } => {
                arguments.extend(["present".to_owned(), zones.clone(), lines(schedules)]);
            }
            Announcement::Withdrawn { .. } => {
                arguments.extend(["withdrawn".to_owned(), String::new(), String::new()]);
            }
        }
        arguments.extend(contested.iter().map(|one| lines(std::slice::from_ref(one))));
        let call = Call { keys: member_keys(&namespace), arguments };
        let mut replies = self.servers.run(&script::BEAT, &[call], None).await;
        let reply =
            replies.pop().unwrap_or_else(|| Err(StoreError::unavailable("the store gave no answer")))?;
        let members = members(&reply, contested)
            .map_err(|damage| reply::foreign(&self.address.to_string(), &damage))?;
        Ok(Stamped { value: members, now: reply.now })
    }
}

impl Clone for Shared {
    /// Another handle with the same connections; it may be opened for another namespace.
    fn clone(&self) -> Self {
        let namespace = self.namespace.read().unwrap_or_else(PoisonError::into_inner).clone();
        Self {
            address: Arc::clone(&self.address),
            servers: Arc::clone(&self.servers),
            options: self.options,
            namespace: RwLock::new(namespace),
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Shared")
            .field("address", &self.address)
            .field("options", &self.options)
            .field("namespace", &namespace.as_ref().map(Namespace::as_str))
            .finish()
    }
}

/// How one call of the trait is told to the server.
struct Operation<'a, I, T> {
    script: &'a Script,
    job: fn(&I) -> &JobName,
    arguments: &'a (dyn Fn(&I) -> Vec<String> + Sync),
    read: fn(&Reply) -> Result<T, Damage>,
    wait: Option<Wait>,
}

/// In braces is what decides the slot. Names hold neither braces nor slashes, so that no two jobs share a key.
fn record_keys(namespace: &Namespace, job: &str) -> [String; 2] {
    [format!("anarchon:{{{namespace}/{job}}}"), format!("anarchon:{{{namespace}/{job}}}:h")]
}

/// Without a slash: no job's.
fn member_keys(namespace: &Namespace) -> [String; 2] {
    [format!("anarchon:{{{namespace}}}:members"), format!("anarchon:{{{namespace}}}:schedules")]
}

/// Schedules as lines, with a line break before the first, so that a whole line can be searched for.
fn lines(schedules: &[(JobName, Fingerprint)]) -> String {
    let mut text = String::from("\n");
    for (job, schedule) in schedules {
        text.push_str(&format!("{job} {schedule}\n"));
    }
    text
}

fn members(reply: &Reply, contested: &[(JobName, Fingerprint)]) -> Result<Members, Damage> {
    let mut rest = reply.rest.iter();
    let mut next = || rest.next().ok_or_else(|| "it is too short".to_owned());
    let known = next()? == "1";
    let count: usize = next()?.parse().map_err(|_| "no number of instances".to_owned())?;
    let mut members = Members { known, ..Members::default() };
    for _ in 0..count {
        let (instance, zones) = (next()?, next()?);
        members.instances.push(InstanceId::new(instance).map_err(|error| error.to_string())?);
        members.zones.push(zones.clone());
    }
    members.instances.sort();
    members.zones.sort();
    members.zones.dedup();
    for place in rest {
        let one = place.parse::<usize>().ok().and_then(|place| contested.get(place.checked_sub(1)?));
        members.announced.push(one.cloned().ok_or_else(|| unknown(place))?);
    }
    Ok(members)
}

fn unknown(word: &str) -> Damage {
    format!("unknown word {:?}", word.chars().take(60).collect::<String>())
}

/// 142 years in microseconds: together with the time of day still a whole number in Lua.
const LONGEST: u128 = 1 << 52;

/// In microseconds, rounded up.
fn micros(duration: Duration) -> String {
    duration.as_nanos().div_ceil(1000).min(LONGEST).to_string()
}

/// In milliseconds, rounded up.
fn whole_millis(duration: Duration) -> String {
    duration.as_nanos().div_ceil(1_000_000).min(LONGEST).to_string()
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in map_err")]
fn wrong(error: StoreError) -> Error {
    Error::new(ErrorKind::Configuration, error.to_string())
}
