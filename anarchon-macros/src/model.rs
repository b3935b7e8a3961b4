//! What the block means. A value of these types is valid: `expand` has nothing left to refuse.

use std::time::Duration;

use anarchon_schedule::{
    At, Cron, Every, ParseError, Schedule as Checked, Spec, Where, nearest, parse_duration,
};
use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt as _;
use syn::{
    Attribute, FnArg, Lit, LitInt, LitStr, Path, Receiver, ReceiverKind, ReturnType, Safety, Signature, Type,
};

use crate::diagnostics::{Diagnostics, did_you_mean, list};
use crate::parse::{self, Argument, Arguments, Block, Item, ItemKind, Marker, MarkerKind, Value};

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

/// The header of `impl Jobs`. Only a refused generic impl has generics.
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
    /// Options of `Job`, as they are written.
    pub(crate) policy: Vec<(Ident, Lit)>,
}

pub(crate) struct Name {
    pub(crate) full: String,
    /// The literal, or the method's name.
    pub(crate) place: TokenStream,
    pub(crate) is_given: bool,
}

pub(crate) struct Schedule {
    pub(crate) kind: MarkerKind,
    pub(crate) texts: Vec<LitStr>,
    /// Options of `Every`, `Cron` or `At`.
    pub(crate) options: Vec<(Ident, LitStr)>,
    pub(crate) checked: Checked,
}

/// How the generated code calls the method.
pub(crate) struct Handler {
    pub(crate) is_async: bool,
    pub(crate) has_receiver: bool,
    pub(crate) parameter: Option<Place>,
    /// The return type, or the method's name where none is written.
    pub(crate) returns: Place,
}

/// Where some tokens begin and end. On stable Rust two spans cannot be joined, so the generated code is given both.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) start: Span,
    pub(crate) end: Span,
}

/// What `#[jobs(…)]` says.
pub(crate) struct BlockOptions {
    prefix: Option<LitStr>,
    more: bool,
    root: Path,
}

const NAME_LIMIT: usize = 100;
const SHORTEST_LEASE: Duration = Duration::from_secs(5);
const HANDLER_SHAPE: &str = "takes `&self` or no receiver, then at most one `Context` or `&Context`, \
                             and returns `()` or `Result<(), E>`";
const POLICY: [&str; 8] =
    ["name", "jitter", "catch_up", "lease", "timeout", "max_attempts", "retries", "backoff"];

impl Place {
    pub(crate) fn of(tokens: &impl ToTokens) -> Self {
        let mut tokens = tokens.to_token_stream().into_iter();
        let Some(first) = tokens.next() else { return Self::at(Span::call_site()) };
        let last = tokens.last().unwrap_or_else(|| first.clone());
        Self { start: opening(&first), end: closing(&last) }
    }

    pub(crate) fn at(span: Span) -> Self {
        Self { start: span, end: span }
    }
}

fn opening(token: &TokenTree) -> Span {
    match token {
        // The delimiters of an invisible group have the place of the macro call, its content has the user's.
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => Place::of(&group.stream()).start,
        TokenTree::Group(group) => group.span_open(),
        other => other.span(),
    }
}

fn closing(token: &TokenTree) -> Span {
    match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => Place::of(&group.stream()).end,
        TokenTree::Group(group) => group.span_close(),
        other => other.span(),
    }
}

impl BlockOptions {
    pub(crate) fn read(arguments: TokenStream, errors: &mut Diagnostics) -> Self {
        let mut options = Self { prefix: None, more: false, root: syn::parse_quote!(::anarchon) };
        for argument in parse::block_arguments(arguments) {
            match argument {
                Ok(argument) => options.set(argument, errors),
                Err(error) => errors.push(error),
            }
        }
        options
    }

    fn set(&mut self, parse::BlockArgument { name, value }: parse::BlockArgument, errors: &mut Diagnostics) {
        match (name.to_string().as_str(), value) {
            ("prefix", Some(value)) => match syn::parse2::<LitStr>(value.clone()) {
                Ok(prefix) => self.prefix = checked_prefix(prefix, errors),
                Err(_) => errors.at(value, "`prefix` is text; write `prefix = \"billing\"`"),
            },
            ("prefix", None) => errors.at(name, "`prefix` needs a value; write `prefix = \"billing\"`"),
            ("more", None) => self.more = true,
            ("more", Some(value)) => errors.at(value, "`more` takes no value; write `#[jobs(more)]`"),
            ("crate", Some(value)) => {
                match syn::parse::Parser::parse2(Path::parse_mod_style, value.clone()) {
                    Ok(root) => self.root = root,
                    Err(_) => {
                        errors.at(value, "`crate` is a path, without quotes; write `crate = my::anarchon`")
                    }
                }
            }
            ("crate", None) => errors.at(name, "`crate` needs a path; write `crate = my::anarchon`"),
            (other, _) => {
                let near = did_you_mean(other, &["prefix", "more", "crate"]);
                let message = format!(
                    "unknown option `{other}` of `#[jobs]`{near} it takes `prefix`, `more` and `crate`"
                );
                errors.at(name, message);
            }
        }
    }
}

fn checked_prefix(prefix: LitStr, errors: &mut Diagnostics) -> Option<LitStr> {
    match name_fault(&prefix.value()) {
        None => Some(prefix),
        Some(fault) => {
            errors.at(&prefix, format!("prefix \"{}\" {fault}", prefix.value()));
            None
        }
    }
}

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
        // The impl is refused already. These bounds keep `impl Jobs` from adding an error of its own.
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
) -> (Option<Name>, Option<(Schedule, Vec<(Ident, Lit)>)>) {
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
        }
    }
    if texts.is_empty() && errors.count() == before {
        errors.at(&marker.path, format!("`#[{word}]` needs {}", wanted(marker.kind)));
    }
    let name = if options.name_faulty { None } else { Name::read(options.name, method, prefix, errors) };
    let schedule = (!texts.is_empty() && !options.own_faulty)
        .then(|| Schedule::check(marker.kind, texts, options.own, errors))
        .flatten();
    if let (Some((jitter, literal)), Some(schedule)) = (&options.jitter, &schedule) {
        refuse_long_jitter(*jitter, literal, schedule, errors);
    }
    let policy = options.policy;
    (name, schedule.map(|schedule| (schedule, policy)))
}

/// Jitter never crosses the next occurrence.
fn refuse_long_jitter(jitter: Duration, literal: &LitStr, schedule: &Schedule, errors: &mut Diagnostics) {
    if let Some(interval) = schedule.checked.shortest_interval().filter(|interval| jitter >= *interval) {
        let text = literal.value();
        errors
            .at(literal, format!("jitter \"{text}\" is not under the interval of {interval:?}; write less"));
    }
}

fn example(kind: MarkerKind) -> &'static str {
    match kind {
        MarkerKind::Every => "#[every(\"10s\")]",
        MarkerKind::Cron => "#[cron(\"0 8 * * 1-5\")]",
        MarkerKind::At => "#[at(\"2027-01-01T00:00:00Z\")]",
    }
}

fn wanted(kind: MarkerKind) -> String {
    let what = match kind {
        MarkerKind::Every => "an interval",
        MarkerKind::Cron => "an expression",
        MarkerKind::At => "an instant",
    };
    format!("{what}, e.g. `{}`", example(kind))
}

fn schedule_text(
    kind: MarkerKind,
    value: &Value,
    before: &[LitStr],
    errors: &mut Diagnostics,
) -> Option<LitStr> {
    let word = kind.word();
    let Some(Lit::Str(text)) = &value.literal else {
        let allowed = allowed(kind);
        match syn::parse2::<Ident>(value.tokens.clone()) {
            Ok(option) if allowed.iter().any(|name| option == name) => {
                errors.at(&option, format!("`{option}` needs a value; write `{}`", option_example(&option.to_string())));
            }
            _ if before.is_empty() => errors.at(
                value,
                format!(
                    "the schedule is a text literal, since it is checked when the program is built; write `{}`, or hand \
                     a value known only at run time to the builder",
                    example(kind)
                ),
            ),
            _ => errors.at(value, format!("this is no option; write `option = value`, with one of {}", list(&allowed))),
        }
        return None;
    };
    if !before.is_empty() && kind != MarkerKind::At {
        errors.at(
            text,
            format!("`#[{word}]` takes one text; for a second schedule write a second `#[{word}]`, each with its `name`"),
        );
        return None;
    }
    Some(text.clone())
}

/// The options of one attribute, as far as they are right.
#[derive(Default)]
struct Options {
    seen: Vec<String>,
    name: Option<LitStr>,
    own: Vec<(Ident, LitStr)>,
    own_faulty: bool,
    name_faulty: bool,
    policy: Vec<(Ident, Lit)>,
    jitter: Option<(Duration, LitStr)>,
}

fn own_options(kind: MarkerKind) -> &'static [&'static str] {
    match kind {
        MarkerKind::Every => &["offset"],
        MarkerKind::Cron => &["tz", "dialect"],
        MarkerKind::At => &["tz"],
    }
}

fn allowed(kind: MarkerKind) -> Vec<&'static str> {
    own_options(kind).iter().chain(&POLICY).copied().collect()
}

fn option_example(name: &str) -> &'static str {
    match name {
        "offset" => "offset = \"5m\"",
        "tz" => "tz = \"Europe/Athens\"",
        "dialect" => "dialect = \"quartz\"",
        "name" => "name = \"sync\"",
        "jitter" => "jitter = \"500ms\"",
        "catch_up" => "catch_up = \"5m\"",
        "lease" => "lease = \"30s\"",
        "timeout" => "timeout = \"2m\"",
        "max_attempts" => "max_attempts = 3",
        "retries" => "retries = 2",
        _ => "backoff = \"5s..5m\"",
    }
}

impl Options {
    fn set(&mut self, kind: MarkerKind, name: &Ident, value: &Value, errors: &mut Diagnostics) {
        let option = name.to_string();
        let own = own_options(kind).contains(&option.as_str());
        if !own && !POLICY.contains(&option.as_str()) {
            errors.at(name, unknown_option(kind, &option));
            // Without the option that was meant, the checks of schedule and names would complain once more.
            let meant = nearest(&option, allowed(kind).into_iter());
            self.own_faulty |= meant.is_some_and(|meant| own_options(kind).contains(&meant));
            self.name_faulty |= meant == Some("name");
            return;
        }
        if self.seen.contains(&option) {
            errors.at(name, format!("`{option}` is given twice; remove one"));
            return;
        }
        self.seen.push(option.clone());
        let before = errors.count();
        match option.as_str() {
            "max_attempts" | "retries" => self.number(name, value, errors),
            _ => self.text(name, value, own, errors),
        }
        let faulty = errors.count() > before;
        self.own_faulty |= own && faulty;
        self.name_faulty |= option == "name" && faulty;
    }

    fn number(&mut self, name: &Ident, value: &Value, errors: &mut Diagnostics) {
        let option = name.to_string();
        let number = match &value.literal {
            Some(Lit::Int(number)) => whole_number(number),
            _ => None,
        };
        match number {
            Some(0) if option == "max_attempts" => {
                errors.at(
                    value,
                    "`max_attempts` is at least 1; without a further attempt write `max_attempts = 1`",
                );
            }
            Some(number) => self.policy.push((name.clone(), Lit::Int(number_literal(number, value)))),
            None => {
                let what = format!("is a whole number up to {}", u32::MAX);
                errors.at(
                    present(name, value),
                    format!("`{option}` {what}; write `{}`", option_example(&option)),
                );
            }
        }
    }

    fn text(&mut self, name: &Ident, value: &Value, own: bool, errors: &mut Diagnostics) {
        let option = name.to_string();
        let Some(Lit::Str(text)) = &value.literal else {
            let what = if value.tokens.is_empty() { "needs a value" } else { "is a text literal" };
            errors
                .at(present(name, value), format!("`{option}` {what}; write `{}`", option_example(&option)));
            return;
        };
        if own {
            self.own.push((name.clone(), text.clone()));
            return;
        }
        if option == "name" {
            self.name = Some(text.clone());
            return;
        }
        match policy_fault(&option, &text.value()) {
            Err(fault) => errors.at(text, fault),
            Ok(duration) => {
                if let (Some(duration), "jitter") = (duration, option.as_str()) {
                    self.jitter = Some((duration, text.clone()));
                }
                self.policy.push((name.clone(), Lit::Str(text.clone())));
            }
        }
    }
}

/// The value, or the option's name where it has none.
fn present(name: &Ident, value: &Value) -> TokenStream {
    if value.tokens.is_empty() { name.to_token_stream() } else { value.to_token_stream() }
}

/// `3`, `3u32` and `1_000`, but not `3u64`, whose type would not fit.
fn whole_number(number: &LitInt) -> Option<u32> {
    if !matches!(number.suffix(), "" | "u32") {
        return None;
    }
    number.base10_parse().ok()
}

fn number_literal(number: u32, place: &Value) -> LitInt {
    LitInt::new(&number.to_string(), Place::of(place).start)
}

fn unknown_option(kind: MarkerKind, option: &str) -> String {
    let word = kind.word();
    let owners: Vec<String> = MarkerKind::ALL
        .into_iter()
        .filter(|kind| own_options(*kind).contains(&option))
        .map(|kind| format!("`#[{}]`", kind.word()))
        .collect();
    let allowed = allowed(kind);
    if owners.is_empty() {
        format!(
            "unknown option `{option}`{} `#[{word}]` takes {}",
            did_you_mean(option, &allowed),
            list(&allowed)
        )
    } else {
        format!(
            "`{option}` is an option of {}, not of `#[{word}]`, which takes {}",
            owners.join(" and "),
            list(&allowed)
        )
    }
}

/// The duration that the text says, or what is wrong with it.
fn policy_fault(option: &str, text: &str) -> Result<Option<Duration>, String> {
    match option {
        "catch_up" if text == "none" => Ok(None),
        "backoff" => backoff_fault(text).map_or(Ok(None), Err),
        _ => {
            let duration = parse_duration(text).map_err(|error| format!("`{option}`: {error}"))?;
            match option {
                "lease" if duration < SHORTEST_LEASE => Err(format!(
                    "a lease is at least 5s, and \"{text}\" is less; write `lease = \"5s\"` or more"
                )),
                "timeout" if duration.is_zero() => {
                    Err("a timeout of zero ends every run at once; write more, or leave it out for none"
                        .to_owned())
                }
                _ => Ok(Some(duration)),
            }
        }
    }
}

fn backoff_fault(text: &str) -> Option<String> {
    let form = "write the first and the longest delay, e.g. `backoff = \"5s..5m\"`";
    let Some((first, longest)) = text.split_once("..") else {
        return Some(format!("`backoff` \"{text}\" is no range; {form}"));
    };
    match (parse_duration(first), parse_duration(longest)) {
        (Ok(first), Ok(_)) if first.is_zero() => {
            Some(format!("`backoff` \"{text}\" begins at zero, which would retry without a pause; {form}"))
        }
        (Ok(first), Ok(longest)) if first > longest => {
            Some(format!("`backoff` \"{text}\" is reversed; {form}"))
        }
        (Ok(_), Ok(_)) => None,
        (Err(error), _) | (_, Err(error)) => Some(format!("`backoff` \"{text}\": {error}; {form}")),
    }
}

impl Name {
    fn read(
        given: Option<LitStr>,
        method: &Ident,
        prefix: Option<&LitStr>,
        errors: &mut Diagnostics,
    ) -> Option<Self> {
        let own = given.as_ref().map_or_else(|| method.unraw().to_string(), LitStr::value);
        let place = given.as_ref().map_or_else(|| method.to_token_stream(), ToTokens::to_token_stream);
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

fn name_fault(name: &str) -> Option<String> {
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

impl Schedule {
    fn check(
        kind: MarkerKind,
        texts: Vec<LitStr>,
        options: Vec<(Ident, LitStr)>,
        errors: &mut Diagnostics,
    ) -> Option<Self> {
        match spec(kind, &texts, &options).check() {
            Ok(checked) => Some(Self { kind, texts, options, checked }),
            Err(faults) => {
                for fault in faults {
                    errors.at(place_of(&fault, &texts, &options), &fault);
                }
                None
            }
        }
    }
}

fn spec(kind: MarkerKind, texts: &[LitStr], options: &[(Ident, LitStr)]) -> Spec {
    let option = |wanted: &str| options.iter().find(|(name, _)| name == wanted).map(|(_, text)| text.value());
    let mut texts = texts.iter().map(LitStr::value);
    let first = texts.next().unwrap_or_default();
    match kind {
        MarkerKind::Every => {
            let every = Every::new(first);
            Spec::Every(match option("offset") {
                Some(offset) => every.offset(offset),
                None => every,
            })
        }
        MarkerKind::Cron => {
            let mut cron = Cron::new(first);
            if let Some(tz) = option("tz") {
                cron = cron.tz(tz);
            }
            if let Some(dialect) = option("dialect") {
                cron = cron.dialect(dialect);
            }
            Spec::Cron(cron)
        }
        MarkerKind::At => {
            let mut at = texts.fold(At::new(first), At::and);
            if let Some(tz) = option("tz") {
                at = at.tz(tz);
            }
            Spec::At(at)
        }
    }
}

fn place_of<'a>(
    fault: &ParseError,
    texts: &'a [LitStr],
    options: &'a [(Ident, LitStr)],
) -> Option<&'a LitStr> {
    let named = |wanted: &str| options.iter().find(|(name, _)| name == wanted).map(|(_, text)| text);
    match fault.option() {
        Where::Schedule => texts.get(fault.index()),
        Where::Offset => named("offset"),
        Where::Tz => named("tz"),
        Where::Dialect => named("dialect"),
        _ => None,
    }
    .or(texts.first())
}

impl Handler {
    fn read(signature: &Signature, errors: &mut Diagnostics) -> Option<Self> {
        let before = errors.count();
        if let Safety::Unsafe(word) = &signature.safety {
            errors.at(
                word,
                "a handler cannot be `unsafe`, since nobody could vouch for the call; remove the word",
            );
        }
        if signature.generics.type_params().next().is_some()
            || signature.generics.const_params().next().is_some()
        {
            let message = format!("a handler cannot be generic; it {HANDLER_SHAPE}");
            errors.at(signature.generics.to_token_stream(), message);
        }
        if let Some(receiver) = signature.receiver() {
            refuse_receiver(receiver, errors);
        }
        let parameters = parse::typed_parameters(&signature.inputs);
        if let Some(second) = parameters.get(1) {
            errors.at(second, format!("one parameter too many for a handler, which {HANDLER_SHAPE}"));
        }
        let parameter = parameters.first().map(|parameter| {
            refuse_parameter(&parameter.ty, errors);
            Place::of(&parameter.ty)
        });
        let returns = match &signature.output {
            ReturnType::Default => Place::at(signature.ident.span()),
            ReturnType::Type(_, returned) => {
                refuse_return(returned, errors);
                Place::of(returned)
            }
        };
        let handler = Self {
            is_async: signature.asyncness.is_some(),
            has_receiver: matches!(signature.inputs.first(), Some(FnArg::Receiver(_))),
            parameter,
            returns,
        };
        (errors.count() == before).then_some(handler)
    }
}

fn refuse_receiver(receiver: &Receiver, errors: &mut Diagnostics) {
    match &receiver.kind {
        ReceiverKind::Reference(_, _, None) => {}
        ReceiverKind::Reference(_, _, Some(_)) => errors.at(
            receiver,
            "a handler cannot take `&mut self`, since runs share the value; write `&self` and keep what changes in a \
             `Mutex` or an atomic",
        ),
        ReceiverKind::Typed(_, kind) if is_shared_self(kind) => {}
        ReceiverKind::Typed(..) => errors.at(receiver, "a handler cannot own its receiver, since it runs many times; write `&self`"),
        _ => errors.at(receiver, "a handler cannot take `self` by value, since it runs many times; write `&self`"),
    }
}

fn is_shared_self(kind: &Type) -> bool {
    match kind {
        Type::Reference(reference) => match &*reference.elem {
            Type::Path(path) => path.path.is_ident("Self"),
            _ => false,
        },
        _ => false,
    }
}

/// Says what tokens show; names are left to the compiler, which knows what they stand for.
fn refuse_parameter(parameter: &Type, errors: &mut Diagnostics) {
    let refused = match parameter {
        Type::Group(group) => return refuse_parameter(&group.elem, errors),
        Type::Paren(inner) => return refuse_parameter(&inner.elem, errors),
        Type::Reference(reference) => {
            let is_static = reference.lifetime.as_ref().is_some_and(|lifetime| lifetime.ident == "static");
            is_static
                || reference.mutability.is_some()
                || !matches!(&*reference.elem, Type::Path(_) | Type::Group(_))
        }
        Type::Path(_) | Type::Macro(_) | Type::Verbatim(_) => false,
        _ => true,
    };
    if refused {
        errors.at(
            parameter,
            format!("`{}` is no parameter of a handler, which {HANDLER_SHAPE}", text_of(parameter)),
        );
    }
}

fn refuse_return(returned: &Type, errors: &mut Diagnostics) {
    let refused = match returned {
        Type::Group(group) => return refuse_return(&group.elem, errors),
        Type::Paren(inner) => return refuse_return(&inner.elem, errors),
        Type::Tuple(tuple) => !tuple.elems.is_empty(),
        Type::Path(_) | Type::Macro(_) | Type::Verbatim(_) => false,
        _ => true,
    };
    if refused {
        errors.at(
            returned,
            format!("`{}` is no return type of a handler, which {HANDLER_SHAPE}", text_of(returned)),
        );
    }
}

/// The tokens as a user would write them, nearly: `& 'static str` loses the space it never had.
fn text_of(kind: &Type) -> String {
    kind.to_token_stream()
        .to_string()
        .replace("& ", "&")
        .replace(" <", "<")
        .replace("< ", "<")
        .replace(" >", ">")
}
