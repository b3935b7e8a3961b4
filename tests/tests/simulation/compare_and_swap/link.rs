//! Requests on a connection, which come late, twice or never.

use std::{cell::Cell, rc::Rc};

use tokio::sync::oneshot;

use super::{
    bucket::{Connection, Host},
    client::Client,
};
use crate::site::Site;

/// As the product has them; microseconds.
const LOST: u64 = 1_500_000;
const SILENT: u64 = 700_000;

pub(super) enum Trouble {
    NotSent,
    Unanswered,
}

/// What a request goes over.
pub(super) struct Link<'a> {
    pub(super) client: &'a Rc<Client>,
    pub(super) connection: &'a Rc<Connection>,
    pub(super) is_given_up: &'a Cell<bool>,
}

impl Link<'_> {
    pub(super) async fn request<T: 'static>(
        &self,
        work: impl Fn(&Host) -> T + 'static,
    ) -> Result<T, Trouble> {
        if !self.connection.is_open.get() || self.is_given_up.get() {
            return Err(Trouble::NotSent);
        }
        let site = &self.client.site;
        let _silence = Silence { link: self, heard: self.connection.heard.get(), since: site.time() };
        let (tell, told) = oneshot::channel();
        let (host, connection) = (Rc::clone(&self.client.host), Rc::clone(self.connection));
        site.tasks.spawn(None, carry(Rc::clone(site), host, connection, work, tell));
        match site.tasks.timeout(LOST, told).await {
            Some(Ok(answer)) => Ok(answer),
            // The connection broke, or nothing came.
            Some(Err(_)) | None => {
                if !self.connection.is_open.get() {
                    self.is_given_up.set(true);
                }
                // Whoever is told at once that the connection broke is told so; the rest waits.
                Err(Trouble::Unanswered)
            }
        }
    }
}

/// A request on its way, at the server, and its answer on its way back.
async fn carry<T>(
    site: Rc<Site>,
    host: Rc<Host>,
    connection: Rc<Connection>,
    work: impl Fn(&Host) -> T,
    tell: oneshot::Sender<T>,
) {
    let (i, life) = (connection.i, site.life());
    if site.loses_request() {
        if site.random(fastrand::Rng::bool) {
            connection.is_open.set(false);
        } else {
            // Silence.
            site.sleep(LOST).await;
        }
        return;
    }
    let Some(at) = site.arrival(i) else { return site.sleep(LOST).await };
    site.tasks.sleep_until(at).await;
    if !site.is_taken_in(life).await {
        return;
    }
    let answer = work(&host);
    if site.doubles() {
        work(&host);
    }
    if site.loses_reply() {
        connection.is_open.set(false);
        return;
    }
    let Some(at) = site.arrival(i) else { return site.sleep(LOST).await };
    site.tasks.sleep_until(at).await;
    if connection.is_open.get() {
        connection.heard.set(connection.heard.get() + 1);
        let _ = tell.send(answer);
    }
}

/// Sees whether a connection was silent for as long as a call waited, however the call ended.
struct Silence<'a> {
    link: &'a Link<'a>,
    heard: u64,
    since: u64,
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        let waited = self.link.client.site.time() - self.since;
        if self.link.connection.heard.get() == self.heard && waited >= SILENT {
            self.link.is_given_up.set(true);
        }
    }
}
