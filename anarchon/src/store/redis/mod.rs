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
    script::{Arguments, Call, Script},
    servers::{Sent, Servers, Wait},
    settings::Options,
};
use super::{Answer, Guarantees, Snapshot, Stamped, Store, StoreError, announced};
use crate::{
    error::{Error, ErrorKind},
    protocol::{
        self, Announcement, Award, Claim, Contested, Control, ControlAction, Controlled, Finish, Finished,
        InstanceId, JobName, JobSpec, Members, Namespace, Outcome, Registered, Renewal, Renewed, Verdict,
        What,
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
    /// | `redis+cluster://host1:6379,host2:6379` | a Cluster; some of its nodes are enough |
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
    /// - **The server decides, by its clock.** A call is a Lua script for some of its jobs, and each of them is decided on its own. Clocks
    ///   of instances do not matter. In a Cluster each node has its own: keep them in step, as a job is as early or late as the clock of its
    ///   node, and after a fail-over its leases are judged by another one.
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
    ///   time (an idle one makes one every 5 s where there are up to ten, and every 20 s at least) still asks the old one, and may be awarded an occurrence, or granted a renewal,
    ///   while another instance has the job by the new one; its first renewal by the new one ends such a run. With
    ///   `wait_replicas(n)` with all replicas the old primary grants nothing: the one that was promoted no longer follows it.
    ///   `min-replicas-to-write` on the server has nearly the same effect, but only once the primary has noticed
    ///   (`min-replicas-max-lag`).
    /// - **Eviction** loses records at any time: a `maxmemory-policy` of `allkeys-*` is refused.
    /// - **Constant size.** A text of 18 words a job, without expiry, and its 20 newest runs, in eight hashes for each namespace. A job is in
    ///   the hash of its name, and each script has one key: a Cluster spreads a namespace over up to eight nodes, and a proxy that
    ///   routes by keys sends a call where the records are. Something else under one of these keys is an error at start that names
    ///   it.
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
        // Shows what the user may not do, and keys that hold something else, before there is a job to lose.
        let nobody = |group| {
            let mut call = Call::of(records(namespace, group));
            call.item(|to| {
                to.push("");
                to.push(0);
            });
            call
        };
        let calls: Vec<Call> = GROUPS.into_iter().map(nobody).collect();
        for answer in
            self.servers.run(&script::INSPECT, Sent::InFull, &calls, None).await.into_iter().flatten()
        {
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

    /// Runs a script for the items of each group, and reads the replies.
    async fn batch<I: Sync, T: Send>(&self, items: &[I], operation: Operation<'_, I, T>) -> Vec<Answer<T>> {
        let namespace = match self.namespace() {
            Ok(namespace) => namespace,
            Err(error) => return items.iter().map(|_| Err(error.clone())).collect(),
        };
        if items.is_empty() {
            return Vec::new();
        }
        let (calls, places) = calls_of(&namespace, items, &operation);
        let mut replies: Vec<_> = items.iter().map(|_| None).collect();
        let answers = self.servers.run(operation.script, Sent::ByHash, &calls, operation.wait).await;
        for (place, reply) in places.into_iter().flatten().zip(answers.into_iter().flatten()) {
            replies[place] = Some(reply);
        }
        let read = |(item, reply): (&I, Option<Result<Reply, StoreError>>)| {
            let reply = reply.unwrap_or_else(|| Err(StoreError::unknown("the store gave no answer")))?;
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
            arguments: &|spec, to| {
                to.push(spec.schedule);
                to.push(&spec.by);
                to.push_some(spec.replace.map(|replace| replace.old));
                to.push(spec.replace.map_or(0, |replace| replace.since.0));
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
        let waits = u8::from(wait.is_some());
        let operation = Operation {
            script: &script::CLAIM,
            job: |claim: &Claim| &claim.job,
            arguments: &|claim, to| {
                to.push(claim.nonce);
                to.push(claim.schedule);
                let (what, which, observed) = match claim.what {
                    What::Planned(at) => ("planned", i128::from(at.0), None),
                    What::Takeover { token, observed } => ("takeover", i128::from(token.0), observed),
                    What::Manual(seq) => ("manual", i128::from(seq), None),
                };
                to.push(what);
                to.push(which);
                to.push_some(observed.map(|until| until.0));
                to.push(micros(claim.lease));
                to.push(whole_millis(claim.window));
                to.push(claim.window.as_micros().min(LONGEST));
                to.push(claim.max_attempts);
                to.push(&claim.holder);
                to.push(waits);
                to.push(claim.expires.0);
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
            arguments: &|renewal, to| {
                to.push(renewal.token);
                to.push(micros(renewal.lease));
            },
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
            arguments: &|finish, to| {
                let (outcome, after) = match finish.outcome {
                    Outcome::Succeeded => ("succeeded", Duration::ZERO),
                    Outcome::Failed => ("failed", Duration::ZERO),
                    Outcome::Cancelled => ("cancelled", Duration::ZERO),
                    Outcome::Retry(after) => ("retrying", after),
                    Outcome::Released => ("released", Duration::ZERO),
                };
                to.push(finish.token);
                to.push(outcome);
                to.push(micros(after));
                match &finish.message {
                    Some(message) => to.push(format_args!("+{message}")),
                    None => to.push("-"),
                }
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
        let operation = Operation {
            script: &script::INSPECT,
            job: |job: &JobName| job,
            arguments: &|_, to| to.push(history),
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
            arguments: &|control, to| {
                let (action, token) = match control.action {
                    ControlAction::Trigger => ("trigger", None),
                    ControlAction::Pause => ("pause", None),
                    ControlAction::Resume => ("resume", None),
                    ControlAction::Cancel(token) => ("cancel", Some(token)),
                    ControlAction::Forget => ("forget", None),
                };
                to.push(action);
                to.push_some(token);
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
        let [key, second_key] = member_keys(&namespace);
        let mut call = Call { second_key: Some(second_key), ..Call::of(key) };
        call.item(|to| {
            to.push(me);
            match announcement {
                Announcement::Present { schedules, zones, .. } => {
                    to.push("present");
                    to.push(zones);
                    to.push(announced::text(schedules, contested));
                }
                Announcement::Withdrawn { .. } => {
                    to.push("withdrawn");
                    to.push("");
                    to.push("");
                }
            }
            contested.iter().for_each(|one| to.push(announced::needle(one)));
        });
        let mut replies =
            self.servers.run(&script::BEAT, Sent::ByHash, &[call], None).await.into_iter().flatten();
        let reply =
            replies.next().unwrap_or_else(|| Err(StoreError::unavailable("the store gave no answer")))?;
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
    arguments: &'a (dyn Fn(&I, &mut Arguments) + Sync),
    read: fn(&Reply) -> Result<T, Damage>,
    wait: Option<Wait>,
}

/// The records of a namespace are spread over so many keys, and so over as many nodes of a Cluster at most.
///
/// A call has one of them: whatever routes by keys, a Cluster or a proxy, sends it where the records are. With other names nobody would
/// find the records that were written under these. They are such that the hash of Redis spreads them evenly: with a last character of
/// 0 to 7 it would put two and two side by side.
const GROUPS: [char; 8] = ['0', '1', '2', '3', 'p', 'q', 'r', 's'];
/// How many items a call of a script has at most: the server does nothing else meanwhile.
const ITEMS: usize = 100;

/// The place of a job's group.
fn group(job: &JobName) -> usize {
    usize::from(servers::slot(job.as_str())) % GROUPS.len()
}

/// In braces is what decides the slot. Names hold neither braces nor slashes, so that no two namespaces share a key.
fn records(namespace: &Namespace, group: char) -> String {
    format!("anarchon:{{{namespace}/{group}}}")
}

/// Without a slash: no group's.
fn member_keys(namespace: &Namespace) -> [String; 2] {
    [format!("anarchon:{{{namespace}}}:members"), format!("anarchon:{{{namespace}}}:schedules")]
}

/// The calls for all items, and the places of their items.
fn calls_of<I, T>(
    namespace: &Namespace,
    items: &[I],
    operation: &Operation<'_, I, T>,
) -> (Vec<Call>, Vec<Vec<usize>>) {
    let (mut calls, mut places) = (Vec::<Call>::new(), Vec::<Vec<usize>>::new());
    let mut open: [Option<usize>; GROUPS.len()] = [None; GROUPS.len()];
    for (place, item) in items.iter().enumerate() {
        let job = (operation.job)(item);
        let group = group(job);
        let of_group = &mut open[group];
        let n = of_group.filter(|n| places[*n].len() < ITEMS).unwrap_or_else(|| {
            calls.push(Call::of(records(namespace, GROUPS[group])));
            places.push(Vec::new());
            calls.len() - 1
        });
        *of_group = Some(n);
        calls[n].item(|arguments| {
            arguments.push(job);
            (operation.arguments)(item, arguments);
        });
        places[n].push(place);
    }
    (calls, places)
}

fn members(reply: &Reply, contested: &[Contested]) -> Result<Members, Damage> {
    let mut rest = reply.rest.iter();
    let mut next = || rest.next().ok_or_else(|| "it is too short".to_owned());
    let known = next()? == "1";
    let number = |word: &str| word.parse::<usize>().map_err(|_| unknown(word));
    let count = number(next()?)?;
    let mut members = Members { known, ..Members::default() };
    for _ in 0..count {
        let (instance, zones) = (next()?, next()?);
        members.instances.push(InstanceId::new(instance).map_err(|error| error.to_string())?);
        members.zones.push(zones.clone());
    }
    members.instances.sort();
    members.zones.sort();
    members.zones.dedup();
    for _ in 0..number(next()?)? {
        members.waiting.extend(announced::waiting(next()?));
    }
    members.waiting = protocol::earliest(members.waiting);
    for place in rest {
        let one = number(place)?.checked_sub(1).and_then(|place| contested.get(place));
        let Contested { in_force, own } = one.ok_or_else(|| unknown(place))?;
        members.announced.push((own.job.clone(), *in_force));
    }
    Ok(members)
}

fn unknown(word: &str) -> Damage {
    format!("unknown word {:?}", word.chars().take(60).collect::<String>())
}

/// 142 years in microseconds: together with the time of day still a whole number in Lua.
const LONGEST: u128 = 1 << 52;

/// In microseconds, rounded up.
fn micros(duration: Duration) -> u128 {
    duration.as_nanos().div_ceil(1000).min(LONGEST)
}

/// In milliseconds, rounded up.
fn whole_millis(duration: Duration) -> u128 {
    duration.as_nanos().div_ceil(1_000_000).min(LONGEST)
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in map_err")]
fn wrong(error: StoreError) -> Error {
    Error::new(ErrorKind::Configuration, error.to_string())
}
