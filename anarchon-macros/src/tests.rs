//! Expansions and messages, without a compiler. What needs one is in the workspace's `tests/ui`.

mod fuzz;

use proc_macro2::{Delimiter, Group, Literal, TokenStream, TokenTree};
use quote::quote;

use super::*;
use crate::model::Jobs;
use crate::options::BlockOptions;

fn expand(arguments: TokenStream, block: &TokenStream) -> String {
    prettyplease::unparse(&syn::parse2(expand_jobs(arguments, block)).unwrap())
}

fn read(arguments: TokenStream, block: TokenStream) -> (Jobs, Diagnostics) {
    let mut errors = Diagnostics::default();
    let block = syn::parse2(block).unwrap();
    let options = BlockOptions::read(arguments, &mut errors);
    let mut jobs = Jobs::read(options, &block, &mut errors);
    check::check(&mut jobs, &mut errors);
    (jobs, errors)
}

fn messages(arguments: TokenStream, block: TokenStream) -> Vec<String> {
    read(arguments, block).1.messages()
}

fn names(arguments: TokenStream, block: TokenStream) -> Vec<String> {
    let (jobs, _) = read(arguments, block);
    jobs.methods.iter().flat_map(|method| &method.jobs).map(|job| job.name.clone()).collect()
}

/// One method under `#[every(…)]`.
fn every(arguments: &TokenStream) -> Vec<String> {
    messages(quote!(), quote!(impl My { #[every(#arguments)] async fn sync(&self) {} }))
}

fn cron(arguments: &TokenStream) -> Vec<String> {
    messages(quote!(), quote!(impl My { #[cron(#arguments)] async fn sync(&self) {} }))
}

/// What the compiler hands over for an argument of `macro_rules!`.
fn from_macro_rules(tokens: TokenStream) -> TokenTree {
    TokenTree::Group(Group::new(Delimiter::None, tokens))
}

#[test]
fn an_option_of_100_years_is_taken_and_a_longer_one_refused() {
    // 100 years of 366 days.
    for option in [quote!(lease), quote!(jitter), quote!(catch_up), quote!(timeout)] {
        assert_eq!(cron(&quote!("@yearly", #option = "36600d")), [""; 0], "{option}");
        let messages = cron(&quote!("@yearly", #option = "36600d1ms"));
        assert!(messages.len() == 1 && messages[0].contains("longer than 100 years"), "{messages:?}");
    }
    assert_eq!(cron(&quote!("@yearly", backoff = "5s..36600d")), [""; 0]);
    let messages = cron(&quote!("@yearly", backoff = "5s..36600d1ms"));
    assert!(messages.len() == 1 && messages[0].contains("longer than 100 years"), "{messages:?}");
}

#[test]
fn a_method_with_a_context_expands_as_recorded() {
    let block = quote! {
        impl MyJobs {
            /// Kept.
            #[every("10s", offset = "5s", lease = "30s", max_attempts = 5)]
            #[instrument]
            pub async fn sync(&self, ctx: &Context) -> JobResult {
                work(ctx).await
            }

            fn helper(&self) {}
        }
    };
    assert_eq!(expand(quote!(), &block), include_str!("snapshots/method_with_a_context.txt"));
}

#[test]
fn a_function_under_cfg_with_two_schedules_expands_as_recorded() {
    let block = quote! {
        impl MyJobs<u8> {
            #[cfg(unix)]
            #[cron("0 8 * * 1-5", name = "daily", tz = "Europe/Athens")]
            #[my::at("2027-01-01T00:00", "2028-01-01T00:00", name = "yearly", tz = "Europe/Athens")]
            #[deprecated]
            fn report() {}
        }
    };
    let arguments = quote!(more, prefix = "billing", crate = my::anarchon);
    assert_eq!(expand(arguments, &block), include_str!("snapshots/function_under_cfg.txt"));
}

#[test]
fn a_faulty_method_loses_its_registration_and_nothing_else() {
    let block = quote! {
        impl MyJobs {
            #[every("10 s")]
            async fn faulty(&self) {}

            #[every("10s")]
            async fn sync(&self) {}
        }
    };
    assert_eq!(expand(quote!(), &block), include_str!("snapshots/faulty_method.txt"));
}

#[test]
fn bodies_are_not_parsed() {
    let block = quote!(impl My { #[every("10s")] async fn sync(&self) { self. } });
    let expanded = expand_jobs(quote!(), &block).to_string();
    assert!(expanded.contains("{ self . }"), "{expanded}");
    assert!(!expanded.contains("compile_error"), "{expanded}");
}

#[test]
fn a_signature_that_cannot_be_read_stays_and_is_said_once() {
    let block =
        quote!(impl My { #[every("10s")] async fn sync(&self, ) -> { } #[every("10s")] fn other() {} });
    assert_eq!(messages(quote!(), block.clone()).len(), 1);
    assert_eq!(names(quote!(), block), ["other"]);
}

#[test]
fn names_come_from_the_method_the_option_and_the_prefix() {
    let block = quote! {
        impl My {
            #[every("10s")] async fn sync(&self) {}
            #[every("10s", name = "other-name")] async fn named(&self) {}
            #[every("10s")] fn r#type() {}
        }
    };
    assert_eq!(names(quote!(), block.clone()), ["sync", "other-name", "type"]);
    assert_eq!(names(quote!(prefix = "a.b"), block), ["a.b.sync", "a.b.other-name", "a.b.type"]);
}

#[test]
fn a_name_is_counted_with_its_prefix() {
    let method = quote::format_ident!("{}", "m".repeat(95));
    let block = quote!(impl My { #[every("10s")] async fn #method(&self) {} });
    assert!(messages(quote!(prefix = "abcd"), block.clone()).is_empty());
    assert!(messages(quote!(prefix = "abcde"), block)[0].contains("has 101 characters"));
}

#[test]
fn methods_under_cfg_may_share_a_name() {
    let block = quote! {
        impl My {
            #[cfg(unix)] #[every("10s")] async fn sync(&self) {}
            #[cfg_attr(all(), cfg(not(unix)))] #[every("20s")] async fn sync(&self) {}
        }
    };
    assert!(messages(quote!(), block).is_empty());
}

#[test]
fn arguments_of_macro_rules_are_seen_through_their_invisible_groups() {
    let interval = from_macro_rules(quote!("10s"));
    let lease = from_macro_rules(from_macro_rules(quote!("1s")).into());
    let retries = from_macro_rules(quote!(3));
    let body = from_macro_rules(quote!({}));
    let attribute = from_macro_rules(quote!(every(#interval, lease = #lease, retries = #retries)));
    let block = quote!(impl My { #[#attribute] async fn sync(&self) #body });
    assert_eq!(
        messages(quote!(), block),
        [r#"a lease is at least 5s, and "1s" is less; write `lease = "5s"` or more"#]
    );
}

#[test]
fn a_misspelt_own_option_brings_no_second_error() {
    let at = quote!(impl My { #[at("2027-01-01T00:00", zt = "Europe/Athens")] fn launch() {} });
    assert_eq!(messages(quote!(), at).len(), 1);
    let two = quote!(impl My { #[every("1s", nmae = "a")] #[every("2s", name = "b")] fn sync() {} });
    assert_eq!(messages(quote!(), two).len(), 1);
}

#[test]
fn options_have_bounds() {
    assert!(every(&quote!("10s", lease = "5s", jitter = "9s", retries = 0, max_attempts = 1)).is_empty());
    assert!(every(&quote!("10s", jitter = "0s", catch_up = "none", backoff = "5s..5s")).is_empty());
    assert!(every(&quote!("10s", catch_up = "5m", max_attempts = 3u32, retries = 4_294_967_295)).is_empty());
    for refused in [
        quote!(lease = "4999ms"),
        quote!(jitter = "10s"),
        quote!(timeout = "0s"),
        quote!(max_attempts = 0),
        quote!(retries = 4_294_967_296),
        quote!(retries = 1u64),
        quote!(retries = 1.0),
        quote!(backoff = "0s..5m"),
        quote!(backoff = "5s.."),
        quote!(backoff = "5s...5m"),
    ] {
        assert_eq!(every(&quote!("10s", #refused)).len(), 1, "{refused}");
    }
}

#[test]
fn a_word_for_no_catch_up_is_told_the_right_one() {
    for word in ["never", "off", "no", "false", ""] {
        let messages = every(&quote!("10s", catch_up = #word));
        assert!(messages[0].ends_with(r#"write `catch_up = "none"` for no catch-up"#), "{messages:?}");
        assert_eq!(messages.len(), 1, "{messages:?}");
    }
    assert_eq!(
        every(&quote!("10s", catch_up = false)),
        [r#"`catch_up` is a text literal; write `catch_up = "5m"` or `catch_up = "none"`"#]
    );
}

#[test]
fn an_option_that_is_nearly_right_is_told_the_right_one() {
    for (written, meant) in [
        ("retry", "retries"),
        ("retires", "retries"),
        ("max", "max_attempts"),
        ("catchup", "catch_up"),
        ("lease_time", "lease"),
        ("off", "offset"),
    ] {
        let option = quote::format_ident!("{written}");
        let messages = every(&quote!("10s", #option = 3));
        let expected = format!("unknown option `{written}`, did you mean `{meant}`? `#[every]` takes ");
        assert!(messages[0].starts_with(&expected), "{messages:?}");
    }
    for written in ["timezone", "re", "colour"] {
        let option = quote::format_ident!("{written}");
        let messages = every(&quote!("10s", #option = 3));
        assert!(messages[0].starts_with(&format!("unknown option `{written}`; `#[every]`")), "{messages:?}");
    }
}

#[test]
fn a_missing_comma_is_named_and_what_follows_is_read() {
    assert_eq!(
        every(&quote!("10s" timeout = "5s")),
        ["a comma is missing before `timeout`; write `, timeout`"]
    );
    assert_eq!(
        every(&quote!("10s", retries = 3 lease = "5s" name = "a b")),
        [
            "a comma is missing before `lease`; write `, lease`",
            "a comma is missing before `name`; write `, name`",
            r#"job name "a b" contains ` `; names are 1–100 of `a-z A-Z 0-9 _ - .`"#
        ]
    );
    let at = quote!(impl My { #[at("2027-01-01T00:00" "2028-01-01T00:00" tz = "UTC")] fn launch() {} });
    let messages = messages(quote!(), at);
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages[0].contains(r#"before `"2028-01-01T00:00"`"#), "{messages:?}");
    assert!(every(&quote!("10s" "20s"))[0].contains("takes one text"));
}

#[test]
fn jobs_twice_on_one_block_is_told_as_that_alone() {
    let block = quote!(
        #[my::jobs(more)]
        impl My {
            #[every("10s")]
            async fn sync(&self) {}
        }
    );
    assert_eq!(
        messages(quote!(), block.clone()),
        ["`#[jobs]` stands twice on this block; remove one, and write all options in the other"]
    );
    let expanded = expand_jobs(quote!(), &block).to_string();
    assert!(!expanded.contains("my :: jobs"), "the compiler would expand it once more: {expanded}");
}

#[test]
fn a_receiver_is_shared_self_or_none() {
    let told = |receiver: TokenStream| {
        messages(quote!(), quote!(impl My { #[every("10s")] async fn sync(#receiver) {} }))
    };
    for allowed in [quote!(&self), quote!(), quote!(self: &Self), quote!(&'a self)] {
        assert!(told(allowed.clone()).is_empty(), "{allowed}");
    }
    for (receiver, shown) in [
        (quote!(self: &Arc<Self>), "self: &Arc<Self>"),
        (quote!(self: std::sync::Arc<Self>), "self: std::sync::Arc<Self>"),
        (quote!(self: &mut Self), "self: &mut Self"),
        (quote!(mut self: Box<Self>), "mut self: Box<Self>"),
        (quote!(&'static self), "&'static self"),
    ] {
        let expected = format!(
            "`{shown}` is no receiver of a handler, which takes `&self` or none, since its runs share the value; \
             write `&self`"
        );
        assert_eq!(told(receiver), [expected]);
    }
}

#[test]
fn each_zone_and_dialect_is_checked_in_its_own_place() {
    let messages = cron(&quote!("0 0 8 ? * MON", dialect = "quarz", tz = "Europe/Athen"));
    assert!(messages.iter().any(|message| message.contains("Europe/Athens")), "{messages:?}");
    assert!(cron(&quote!("0 0 8 ? * MON", dialect = "quartz", tz = "Europe/Athens")).is_empty());
}

#[test]
fn a_marker_outside_is_one_sentence_and_the_item_stays() {
    let expanded = marker(
        MarkerKind::Every,
        &quote!("10s"),
        &quote!(
            fn sync() {}
        ),
    )
    .to_string();
    assert!(expanded.contains("put `#[jobs]` on the impl block"), "{expanded}");
    assert!(expanded.ends_with("fn sync () { }"), "{expanded}");
    assert!(
        marker(
            MarkerKind::Every,
            &quote!(__read_by_jobs),
            &quote!(
                const _: () = ();
            )
        )
        .is_empty()
    );
}

#[test]
fn whatever_is_handed_in_nothing_panics() {
    let literal = TokenTree::Literal(Literal::f64_unsuffixed(1.5));
    for item in [
        quote!(),
        quote!(impl),
        quote!(
            fn f() {}
        ),
        quote!(impl My),
        quote!(impl My { fn }),
        quote!(#literal),
    ] {
        assert!(expand_jobs(quote!(), &item).to_string().contains("compile_error"), "{item}");
    }
    for arguments in
        [quote!(,), quote!(=), quote!(more more), quote!(prefix), quote!(crate = 1), quote!("x"), quote!(#)]
    {
        let block = quote!(impl My { #[every("10s")] fn f() {} });
        assert_eq!(messages(arguments.clone(), block).len(), 1, "{arguments}");
    }
    for arguments in [
        quote!(,),
        quote!(= 1),
        quote!("10s" "5s"),
        quote!("10s", =),
        quote!(1 + 1),
        quote!(::x),
        quote!('a'),
    ] {
        assert_eq!(every(&arguments).len(), 1, "{arguments}");
    }
}
