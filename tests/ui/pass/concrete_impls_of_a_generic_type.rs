use anarchon::prelude::*;
use std::sync::Arc;

struct Jobs2<T>(T);

#[jobs(prefix = "small")]
impl Jobs2<u8> {
    #[every("10s")]
    async fn sync(&self, ctx: &Context) -> Result<(), String> {
        let _ = (self.0, ctx);
        Ok(())
    }
}

#[jobs(prefix = "large")]
impl Jobs2<Vec<u64>> {
    #[every("10s")]
    fn sync_all(&self) {
        let _ = self.0.len();
    }
}

fn main() {
    drop(anarchon::run((Jobs2(1), Arc::new(Jobs2(vec![1])))));
}
