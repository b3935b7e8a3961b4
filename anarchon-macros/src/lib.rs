//! The attribute macros of the anarchon job scheduler.
//!
//! Use them through the crate `anarchon`, which re-exports them: the code they write names everything through it.

mod check;
mod diagnostics;
mod expand;
mod handler;
mod model;
mod options;
mod parse;
mod schedule;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;
use proc_macro2::{Span, TokenTree};
use quote::quote;

use crate::diagnostics::Diagnostics;
use crate::parse::{Block, MarkerKind};

#[doc = include_str!("docs/jobs.md")]
#[proc_macro_attribute]
pub fn jobs(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand_jobs(arguments.into(), &item.into()).into()
}

#[doc = include_str!("docs/every.md")]
#[doc = include_str!("docs/options.md")]
#[proc_macro_attribute]
pub fn every(arguments: TokenStream, item: TokenStream) -> TokenStream {
    marker(MarkerKind::Every, &arguments.into(), &item.into()).into()
}

#[doc = include_str!("docs/cron.md")]
#[doc = include_str!("docs/options.md")]
#[proc_macro_attribute]
pub fn cron(arguments: TokenStream, item: TokenStream) -> TokenStream {
    marker(MarkerKind::Cron, &arguments.into(), &item.into()).into()
}

#[doc = include_str!("docs/at.md")]
#[doc = include_str!("docs/options.md")]
#[proc_macro_attribute]
pub fn at(arguments: TokenStream, item: TokenStream) -> TokenStream {
    marker(MarkerKind::At, &arguments.into(), &item.into()).into()
}

fn expand_jobs(
    arguments: proc_macro2::TokenStream,
    item: &proc_macro2::TokenStream,
) -> proc_macro2::TokenStream {
    let mut errors = Diagnostics::default();
    let block = match syn::parse2::<Block>(item.clone()) {
        Ok(block) => block,
        Err(error) => {
            errors.push(no_block(item, error));
            let errors = errors.into_tokens();
            return quote!(#errors #item);
        }
    };
    let options = options::BlockOptions::read(arguments, &mut errors);
    let mut jobs = model::Jobs::read(options, &block, &mut errors);
    check::check(&mut jobs, &mut errors);
    let code = expand::expand(&jobs, &block);
    let errors = errors.into_tokens();
    quote!(#code #errors)
}

fn no_block(item: &proc_macro2::TokenStream, error: syn::Error) -> syn::Error {
    let is_impl =
        item.clone().into_iter().any(|token| matches!(token, TokenTree::Ident(word) if word == "impl"));
    if is_impl {
        return error;
    }
    syn::Error::new(
        Span::call_site(),
        "`#[jobs]` goes on an impl block of the type with the jobs: `impl Type { … }`",
    )
}

/// `#[jobs]` reads the markers and takes them off. One that is expanded by the compiler stands in the wrong place, but for
/// those that `#[jobs]` leaves behind to show that their imports are used.
fn marker(
    kind: MarkerKind,
    arguments: &proc_macro2::TokenStream,
    item: &proc_macro2::TokenStream,
) -> proc_macro2::TokenStream {
    if arguments.to_string() == expand::READ {
        return proc_macro2::TokenStream::new();
    }
    let message = format!(
        "`#[{word}]` is read by `#[jobs]`; put `#[jobs]` on the impl block around the method",
        word = kind.word()
    );
    let error = syn::Error::new(Span::call_site(), message).into_compile_error();
    quote!(#error #item)
}
