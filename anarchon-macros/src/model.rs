//! What the block means. A value of these types is valid: `expand` has nothing left to refuse.

use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote};
use syn::ext::IdentExt as _;
use syn::{Attribute, Lit, LitStr, Path, Type};

use crate::diagnostics::Diagnostics;
use crate::handler::Handler;
use crate::options::{BlockOptions, Options};
use crate::parse::{self, Argument, Arguments, Block, Item, ItemKind, Marker, MarkerKind};
use crate::schedule::{Schedule, example, schedule_text, wanted};

/// All jobs of one block, and how the type becomes `Jobs`.
pub(crate) struct Jobs {
    /// Where anarchon is found: `::anarchon`, unless `crate = …` says otherwise.
    pub(crate) root: Path,
    /// `None` under `#[jobs(more)]`.
    pub(crate) owner: Option<Owner>,
    pub(crate) self_type: Type,
    pub(crate) cfgs: Vec<Attribute>,
    pub(crate) methods: Vec<Method>,
}

/// The header of the impl that makes the type `Jobs`. Only a refused generic impl has generics.
pub(crate) struct Owner {
    pub(crate) generics: TokenStream,
    pub(crate) self_type: TokenStream,
    pub(crate) where_clause: TokenStream,
}

/// A method with at least one schedule. A faulty one has no jobs.
pub(crate) struct Method {
    pub(crate) name: Ident,
    pub(crate) cfgs: Vec<Attribute>,
    pub(crate) deprecated: bool,
    /// As the user wrote them, so that the compiler sees their imports in use.
    pub(crate) markers: Vec<Path>,
    /// One for each schedule, also of a faulty method: the checks between jobs want them all.
    pub(crate) names: Vec<Option<Name>>,
    /// One for all jobs of the method, so that the compiler says once what is wrong with its types.
    pub(crate) handler: Option<Handler>,
    pub(crate) jobs: Vec<Job>,
}

pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) schedule: Schedule,
    pub(crate) policy: Policy,
}

/// Options of `Job`, as they are written.
pub(crate) type Policy = Vec<(Ident, Lit)>;

pub(crate) struct Name {
    pub(crate) full: String,
    /// The literal, or the method's name.
    pub(crate) place: TokenStream,
    pub(crate) is_given: bool,
}

const NAME_LIMIT: usize = 100;

impl Jobs {
    pub(crate) fn read(options: BlockOptions, block: &Block, errors: &mut Diagnostics) -> Self {
        let is_generic = refuse_headers(block, errors);
        let mut methods = Vec::new();
        for item in &block.items {
            methods.extend(method(item, options.prefix.as_ref(), errors));
        }
        if is_generic {
            for method in &mut methods {
                method.handler = None;
                method.jobs.clear();
            }
        }
        Self {
            root: options.root,
            owner: (!options.more).then(|| Owner::read(block, is_generic)),
            self_type: block.self_type.clone(),
            cfgs: parse::cfgs(&block.attributes),
            methods,
        }
    }
}

impl Owner {
    fn read(block: &Block, is_generic: bool) -> Self {
        let self_type = block.self_type.to_token_stream();
        if !is_generic {
            return Self { generics: TokenStream::new(), self_type, where_clause: TokenStream::new() };
        }
        // The impl is refused already. These bounds keep that of `Jobs` from adding an error of its own.
        let (generics, self_type) = name_lifetimes(&block.generics, self_type);
        let given = block.where_clause.as_ref().map(|clause| &clause.predicates).into_iter().flatten();
        let where_clause = quote! {
            where #(#given,)* #self_type: ::core::marker::Send + ::core::marker::Sync + 'static
        };
        Self { generics, self_type, where_clause }
    }
}

/// `'_` may not stand in a where clause.
fn name_lifetimes(generics: &syn::Generics, self_type: TokenStream) -> (TokenStream, TokenStream) {
    let mut found = false;
    let self_type = rename_elided(self_type, &mut found);
    let parameters = generics.params.iter();
    let elided = found.then(|| quote!('__elided,));
    (quote!(<#elided #(#parameters),*>), self_type)
}

fn rename_elided(tokens: TokenStream, found: &mut bool) -> TokenStream {
    let mut after_quote = false;
    tokens
        .into_iter()
        .map(|token| {
            let was_quote = std::mem::take(&mut after_quote);
            match token {
                TokenTree::Punct(punct) => {
                    after_quote = punct.as_char() == '\'';
                    TokenTree::Punct(punct)
                }
                TokenTree::Ident(ident) if was_quote && ident == "_" => {
                    *found = true;
                    TokenTree::Ident(Ident::new("__elided", ident.span()))
                }
                TokenTree::Group(group) => {
                    let mut renamed =
                        proc_macro2::Group::new(group.delimiter(), rename_elided(group.stream(), found));
                    renamed.set_span(group.span());
                    TokenTree::Group(renamed)
                }
                other => other,
            }
        })
        .collect()
}

/// Refuses impls that cannot be collected. Says whether the impl is generic.
fn refuse_headers(block: &Block, errors: &mut Diagnostics) -> bool {
    for jobs in &block.repeated {
        errors
            .at(jobs, "`#[jobs]` stands twice on this block; remove one, and write all options in the other");
    }
    if let Some(header) = &block.of_trait {
        errors.at(
            &header.path,
            "`#[jobs]` goes on an impl block of the type itself, not of a trait; move the jobs into `impl Type { … }`",
        );
    }
    let mut elided = false;
    rename_elided(block.self_type.to_token_stream(), &mut elided);
    let place = match (block.generics.params.is_empty(), elided) {
        (true, false) => return false,
        (true, true) => block.self_type.to_token_stream(),
        (false, _) => block.generics.to_token_stream(),
    };
    errors.at(
        place,
        "the jobs of a generic impl cannot be collected when the program is linked; write the impl for one concrete \
         type, or hand the jobs to the builder: `Scheduler::every(\"name\", \"10s\", handler)`",
    );
    true
}

fn method(item: &Item, prefix: Option<&LitStr>, errors: &mut Diagnostics) -> Option<Method> {
    let before = errors.count();
    for word in &item.hidden {
        let message = format!(
            "`{word}` cannot stand inside `cfg_attr`, where `#[jobs]` does not see it; put `#[cfg(…)]` on the method, \
             and write a second method if there are two schedules"
        );
        errors.at(word, message);
    }
    if item.markers.is_empty() {
        return (errors.count() > before).then(|| faulty(item));
    }
    let signature = match &item.kind {
        ItemKind::Method(signature) => signature,
        ItemKind::Unreadable(error) => {
            errors.push(error.clone());
            return Some(faulty(item));
        }
        ItemKind::Other => {
            for marker in &item.markers {
                errors.at(&marker.path, format!("`#[{}]` goes on a method", marker.kind.word()));
            }
            return Some(faulty(item));
        }
    };
    let handler = Handler::read(signature, errors);
    let mut names = Vec::new();
    let mut jobs = Vec::new();
    for marker in &item.markers {
        let (name, job) = job(marker, &signature.ident, prefix, errors);
        if let (Some(name), Some((schedule, policy))) = (&name, job) {
            jobs.push(Job { name: name.full.clone(), schedule, policy });
        }
        names.push(name);
    }
    if errors.count() > before {
        jobs.clear();
    }
    let deprecated = item.attributes.iter().any(|attribute| attribute.path().is_ident("deprecated"));
    Some(Method { name: signature.ident.clone(), deprecated, names, handler, jobs, ..faulty(item) })
}

/// What is left of a method that says nothing useful.
fn faulty(item: &Item) -> Method {
    Method {
        name: Ident::new("_faulty", Span::call_site()),
        cfgs: parse::cfgs(&item.attributes),
        deprecated: false,
        markers: item.markers.iter().map(|marker| marker.path.clone()).collect(),
        names: Vec::new(),
        handler: None,
        jobs: Vec::new(),
    }
}

/// One schedule of one method: its name, and when and how it runs. `None` where it is wrong; all of it has been said then.
fn job(
    marker: &Marker,
    method: &Ident,
    prefix: Option<&LitStr>,
    errors: &mut Diagnostics,
) -> (Option<Name>, Option<(Schedule, Policy)>) {
    let word = marker.kind.word();
    let arguments = match &marker.arguments {
        Arguments::List(arguments) => arguments,
        Arguments::None => {
            errors.at(&marker.path, format!("`#[{word}]` needs {}", wanted(marker.kind)));
            return (None, None);
        }
        Arguments::Assigned => {
            errors
                .at(&marker.path, format!("`#[{word}]` takes parentheses; write `{}`", example(marker.kind)));
            return (None, None);
        }
    };

    let before = errors.count();
    let mut texts = Vec::new();
    let mut options = Options::default();
    for argument in arguments {
        match argument {
            Argument::Positional(value) => texts.extend(schedule_text(marker.kind, value, &texts, errors)),
            Argument::Named(name, value) => options.set(marker.kind, name, value, errors),
            Argument::Empty(comma) => errors.at(comma, "a comma too many; remove it"),
            // A text too many is told so, comma or not.
            Argument::Unseparated(TokenTree::Literal(_)) if marker.kind != MarkerKind::At => {}
            Argument::Unseparated(next) => {
                errors.at(next, format!("a comma is missing before `{next}`; write `, {next}`"));
            }
        }
    }
    if texts.is_empty() && errors.count() == before {
        errors.at(&marker.path, format!("`#[{word}]` needs {}", wanted(marker.kind)));
    }
    let name =
        if options.name_faulty { None } else { Name::read(options.name.as_ref(), method, prefix, errors) };
    let schedule = (!texts.is_empty() && !options.own_faulty)
        .then(|| Schedule::check(marker.kind, texts, options.own, errors))
        .flatten();
    if let (Some((jitter, literal)), Some(schedule)) = (&options.jitter, &schedule) {
        refuse_long_jitter(*jitter, literal, schedule, errors);
    }
    let policy = options.policy;
    (name, schedule.map(|schedule| (schedule, policy)))
}

/// Jitter never crosses the next occurrence. For cron and at the distance to it is known at run time only.
fn refuse_long_jitter(jitter: Duration, literal: &LitStr, schedule: &Schedule, errors: &mut Diagnostics) {
    let Some(interval) = schedule.checked.shortest_interval() else { return };
    if jitter >= interval {
        let written = schedule.texts.first().map(LitStr::value).unwrap_or_default();
        let message =
            format!("jitter \"{}\" is not under the interval \"{written}\"; write less", literal.value());
        errors.at(literal, message);
    }
}

impl Name {
    fn read(
        given: Option<&LitStr>,
        method: &Ident,
        prefix: Option<&LitStr>,
        errors: &mut Diagnostics,
    ) -> Option<Self> {
        let own = given.map_or_else(|| method.unraw().to_string(), LitStr::value);
        let place = given.map_or_else(|| method.to_token_stream(), LitStr::to_token_stream);
        let full = match prefix {
            Some(prefix) => format!("{}.{own}", prefix.value()),
            None => own.clone(),
        };
        // The part is looked at first, since `billing.` alone would pass for a name.
        if let Some(fault) = name_fault(&own).or_else(|| name_fault(&full)) {
            let mend = if given.is_some() { "" } else { "; give the job another one: `name = \"…\"`" };
            errors.at(place, format!("job name \"{full}\" {fault}{mend}"));
            return None;
        }
        Some(Self { full, place, is_given: given.is_some() })
    }
}

pub(crate) fn name_fault(name: &str) -> Option<String> {
    let allowed = format!("names are 1–{NAME_LIMIT} of `a-z A-Z 0-9 _ - .`");
    if name.is_empty() {
        return Some(format!("is empty; {allowed}"));
    }
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    if let Some(letter) = name.chars().find(|letter| !is_allowed(*letter)) {
        return Some(format!("contains `{}`; {allowed}", letter.escape_debug()));
    }
    let length = name.len();
    (length > NAME_LIMIT).then(|| format!("has {length} characters; {allowed}"))
}
