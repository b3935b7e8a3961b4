mod my {
    pub mod reexported {
        pub use anarchon::*;
    }
}

struct MyJobs;

#[my::reexported::jobs(crate = my::reexported)]
impl MyJobs {
    #[my::reexported::every("10s")]
    async fn sync(&self, ctx: my::reexported::Context) -> my::reexported::JobResult {
        drop(ctx);
        Ok(())
    }
}

macro_rules! declare {
    ($type:ident) => {
        #[$crate::my::reexported::jobs(crate = $crate::my::reexported)]
        impl $type {
            #[$crate::my::reexported::every("10s")]
            async fn sync(&self) {}
        }
    };
}

struct Declared;
declare!(Declared);

fn main() {
    drop(my::reexported::run((MyJobs, Declared)));
}
