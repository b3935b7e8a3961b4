//! From the model to tokens. Nothing can fail here any more.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::{Path, Type};

use crate::handler::{Handler, Place};
use crate::model::{Job, Jobs, Method, Owner};
use crate::parse::{Block, MarkerKind};
use crate::schedule::Schedule;

/// The argument of a marker that `#[jobs]` has read.
pub(crate) const READ: &str = "__read_by_jobs";

/// The impl block without its schedules, what makes the type `Jobs`, and a registration for each job.
pub(crate) fn expand(jobs: &Jobs, block: &Block) -> TokenStream {
    let owner = match &jobs.owner {
        Some(owner) => implement_jobs(jobs, owner),
        None => require_jobs(jobs),
    };
    let methods = jobs.methods.iter().map(|method| register(jobs, method));
    quote! {
        #block
        #owner
        #(#methods)*
    }
}

fn implement_jobs(Jobs { root, cfgs, .. }: &Jobs, owner: &Owner) -> TokenStream {
    let Owner { generics, self_type, where_clause } = owner;
    quote! {
        #(#cfgs)*
        #[automatically_derived]
        impl #generics #root::__private::FurtherBlocksNeedJobsMore for #self_type #where_clause {
            type __Kind = #root::__private::Declared;
            fn __package() -> #root::__private::Option<&'static str> {
                ::core::option_env!("CARGO_PKG_NAME")
            }
            fn __hand_over(self, __given: &mut #root::__private::Given) {
                __given.take(#root::__private::Arc::new(self));
            }
        }
    }
}

fn require_jobs(Jobs { root, cfgs, self_type, .. }: &Jobs) -> TokenStream {
    quote! {
        #(#cfgs)*
        const _: () = #root::__private::has_jobs::<#self_type>();
    }
}

fn register(jobs: &Jobs, method: &Method) -> TokenStream {
    let Method { cfgs, markers, .. } = method;
    let block_cfgs = &jobs.cfgs;
    let read = Ident::new(READ, Span::mixed_site());
    // A warning about the user's own call is his; one about ours would have no mend.
    let deprecated = method.deprecated.then(|| quote!(#[allow(deprecated)]));
    let handler = method.handler.as_ref().map(|called| {
        let handler = handler(&jobs.root, &jobs.self_type, &method.name, called);
        let registrations = method.jobs.iter().map(|job| registration(jobs, job));
        quote! {
            #(#block_cfgs)*
            #(#cfgs)*
            #deprecated
            const _: () = {
                #handler
                #(#registrations)*
            };
        }
    });
    // The markers are gone from the method; named here, their imports count as used and editors find their docs.
    let markers = markers.iter().map(|marker| {
        quote! {
            #(#block_cfgs)*
            #(#cfgs)*
            #[#marker(#read)]
            const _: () = ();
        }
    });
    quote!(#(#markers)* #handler)
}

fn registration(Jobs { root, self_type, .. }: &Jobs, job: &Job) -> TokenStream {
    let name = &job.name;
    let schedule = schedule(root, &job.schedule);
    let policy = job.policy.iter().map(|(option, value)| {
        let option = Ident::new(&option.to_string(), Span::mixed_site());
        quote!(.#option(#value))
    });
    quote_spanned! {Span::mixed_site()=>
        #root::__private::inventory::submit! {
            #root::__private::Registration::new::<#self_type>(|__value| {
                #root::__private::Job::from_parts(#name, #schedule, __handler(__value)) #(#policy)*
            })
        }
    }
}

fn schedule(root: &Path, schedule: &Schedule) -> TokenStream {
    let mut texts = schedule.texts.iter();
    let first = texts.next();
    let builder = match schedule.kind {
        MarkerKind::Every => quote!(Every),
        MarkerKind::Cron => quote!(Cron),
        MarkerKind::At => quote!(At),
    };
    let options = schedule.options.iter().map(|(option, value)| {
        let option = Ident::new(&option.to_string(), Span::mixed_site());
        quote!(.#option(#value))
    });
    quote!(#root::__private::#builder::new(#first) #(.and(#texts))* #(#options)*)
}

/// What calls the method. Each call carries the place of what the compiler may find wrong with it: the parameter's type, the return type, and
/// for `Send` the method's name.
fn handler(root: &Path, self_type: &Type, name: &Ident, handler: &Handler) -> TokenStream {
    let place = generated(name.span());
    let receiver = handler.has_receiver.then(|| quote_spanned!(place=> &__owner,));
    let parameter = handler.parameter.map(|place| {
        let path = hidden(root, "parameter", place);
        let context = quote_spanned!(generated(place.end)=> (&__context));
        quote!(#path #context)
    });
    let arguments = quote!(#receiver #parameter);
    let call = call(self_type, name, &arguments, handler);
    let outcome = hidden(root, "outcome", handler.returns);
    let call = parenthesised(&call, handler.returns.end);
    let keep = handler.has_receiver.then(|| {
        quote_spanned! {place=>
            let __owner = #root::__private::owner::<#self_type>(__value);
        }
    });
    let again = handler.has_receiver.then(|| {
        quote_spanned! {place=>
            let __owner = #root::__private::Clone::clone(&__owner);
        }
    });
    let context = match handler.parameter {
        Some(_) => quote_spanned!(place=> __context),
        None => quote_spanned!(place=> _),
    };
    let run = if handler.is_async {
        let asynchronous = hidden(root, "asynchronous", Place::at(name.span()));
        quote_spanned! {place=>
            #asynchronous(move |#context| {
                #again
                async move { #outcome #call }
            })
        }
    } else {
        let blocking = hidden(root, "blocking", Place::at(name.span()));
        quote_spanned!(place=> #blocking(move |#context| #outcome #call))
    };
    let value =
        if handler.has_receiver { quote_spanned!(place=> __value) } else { quote_spanned!(place=> _) };
    quote_spanned! {place=>
        fn __handler(#value: &dyn #root::__private::Any) -> #root::__private::Handler {
            #keep
            #run
        }
    }
}

/// `<Type>::method(…)`, from the first to the last token at the return type, since that is what the compiler underlines.
fn call(self_type: &Type, name: &Ident, arguments: &TokenStream, handler: &Handler) -> TokenStream {
    let start = generated(handler.returns.start);
    let end = generated(handler.returns.end);
    let path = quote_spanned!(start=> <#self_type>::#name);
    if handler.is_async {
        let wait = quote_spanned!(end=> .await);
        quote_spanned!(start=> #path(#arguments) #wait)
    } else {
        let arguments = parenthesised(arguments, handler.returns.end);
        quote!(#path #arguments)
    }
}

fn parenthesised(tokens: &TokenStream, place: Span) -> TokenStream {
    quote_spanned!(generated(place)=> (#tokens))
}

/// A path into anarchon that begins and ends where `place` does.
fn hidden(root: &Path, function: &str, place: Place) -> TokenStream {
    let root = root.to_token_stream();
    // The compiler joins the places of two tokens only if their names are looked up in the same way.
    let lookup = root.clone().into_iter().next().map_or_else(Span::call_site, |token| token.span());
    let start = root.into_iter().map(|mut token| {
        token.set_span(token.span().located_at(place.start));
        token
    });
    let middle = quote_spanned!(lookup.located_at(place.start)=> ::__private::);
    let function = Ident::new(function, lookup.located_at(place.end));
    quote!(#(#start)* #middle #function)
}

/// At the user's tokens, but known to be ours: lints then leave it alone, and local names cannot meet.
fn generated(location: Span) -> Span {
    Span::mixed_site().located_at(location)
}
