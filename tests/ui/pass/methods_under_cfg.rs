use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[cfg(feature = "extra")]
    #[every("10s")]
    async fn sync(&self, missing: anarchon::Missing) {}

    #[every("20s")]
    #[cfg(not(feature = "extra"))]
    async fn sync(&self) {}

    #[cfg_attr(all(), cfg(feature = "extra"))]
    #[every("20s")]
    async fn digest(&self, missing: anarchon::Missing) {}

    #[cfg_attr(all(), allow(unused_variables))]
    #[every("20s")]
    async fn report(&self, ctx: Context) {}
}

#[jobs(more)]
#[cfg(feature = "extra")]
impl Missing {
    #[every("10s")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
