//! From tokens to what the user wrote, every value with its place. Method bodies stay raw tokens: syn would refuse the
//! whole block at a half-typed `self.`, and the user would lose completion just where it is wanted.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Generics, Lit, Meta, Path, Signature, Token, Type, Visibility, WhereClause, parse_quote,
};

/// The impl block under `#[jobs]`.
pub(crate) struct Block {
    pub(crate) attributes: Vec<Attribute>,
    /// Further `#[jobs]` on the same block. The compiler never sees them, since this one takes the schedules off.
    pub(crate) repeated: Vec<Attribute>,
    pub(crate) unsafety: Option<Token![unsafe]>,
    pub(crate) impl_token: Token![impl],
    pub(crate) generics: Generics,
    /// `!Trait for`, which has no place under `#[jobs]`.
    pub(crate) of_trait: Option<TraitHeader>,
    pub(crate) self_type: Type,
    pub(crate) where_clause: Option<WhereClause>,
    pub(crate) inner_attributes: Vec<Attribute>,
    pub(crate) items: Vec<Item>,
}

pub(crate) struct TraitHeader {
    pub(crate) path: Type,
    pub(crate) for_token: Token![for],
}

/// One item of the block. Whatever it is, `rest` is what follows its attributes and goes back to the compiler as it came.
pub(crate) struct Item {
    /// Without the schedules.
    pub(crate) attributes: Vec<Attribute>,
    /// The words of schedules in `cfg_attr`, where they are not allowed.
    pub(crate) hidden: Vec<Ident>,
    pub(crate) markers: Vec<Marker>,
    pub(crate) kind: ItemKind,
    pub(crate) rest: TokenStream,
}

pub(crate) enum ItemKind {
    Method(Box<Signature>),
    /// A signature that syn cannot read.
    Unreadable(syn::Error),
    Other,
}

/// `#[every(…)]`, `#[cron(…)]` or `#[at(…)]` on an item.
pub(crate) struct Marker {
    pub(crate) kind: MarkerKind,
    pub(crate) path: Path,
    pub(crate) arguments: Arguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkerKind {
    Every,
    Cron,
    At,
}

pub(crate) enum Arguments {
    /// `#[every]`
    None,
    /// `#[every = …]`
    Assigned,
    List(Vec<Argument>),
}

pub(crate) enum Argument {
    Positional(Value),
    Named(Ident, Value),
    /// Two commas in a row.
    Empty(TokenTree),
    /// No comma before this one. What it begins comes next.
    Unseparated(TokenTree),
}

/// What stands after `=`, or in its place. No tokens at all where it is missing.
pub(crate) struct Value {
    pub(crate) literal: Option<Lit>,
    pub(crate) tokens: TokenStream,
}

impl MarkerKind {
    pub(crate) const ALL: [Self; 3] = [Self::Every, Self::Cron, Self::At];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Every => "every",
            Self::Cron => "cron",
            Self::At => "at",
        }
    }

    fn of(path: &Path) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| is_ours(path, kind.word()))
    }
}

/// Any path that ends in our word is ours: a renamed or re-exported anarchon has any prefix.
fn is_ours(path: &Path, word: &str) -> bool {
    path.segments.last().is_some_and(|last| last.ident == word)
}

impl Marker {
    fn read(attribute: &Attribute) -> Option<Self> {
        let kind = MarkerKind::of(attribute.path())?;
        let arguments = match &attribute.meta {
            Meta::Path(_) => Arguments::None,
            Meta::NameValue(_) => Arguments::Assigned,
            Meta::List(list) => Arguments::List(arguments(list.tokens.clone())),
        };
        Some(Self { kind, path: attribute.path().clone(), arguments })
    }
}

impl ToTokens for Value {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.tokens.to_tokens(tokens);
    }
}

impl Parse for Block {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let (repeated, attributes) = input
            .call(Attribute::parse_outer)?
            .into_iter()
            .partition(|attribute| is_ours(attribute.path(), "jobs"));
        let unsafety = input.parse()?;
        let impl_token = input.parse()?;
        let generics = if starts_generics(input) { input.parse()? } else { Generics::default() };
        let first: Type = input.parse()?;
        let (of_trait, self_type) = match input.parse::<Option<Token![for]>>()? {
            Some(for_token) => (Some(TraitHeader { path: first, for_token }), input.parse()?),
            None => (None, first),
        };
        let where_clause = input.parse()?;
        let content;
        syn::braced!(content in input);
        let inner_attributes = content.call(Attribute::parse_inner)?;
        let mut items = Vec::new();
        while !content.is_empty() {
            items.push(content.parse()?);
        }
        let block = Self {
            attributes,
            repeated,
            unsafety,
            impl_token,
            generics,
            of_trait,
            self_type,
            where_clause,
            inner_attributes,
            items,
        };
        Ok(block)
    }
}

impl Parse for Item {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let mut markers = Vec::new();
        let mut attributes = Vec::new();
        for attribute in input.call(Attribute::parse_outer)? {
            match Marker::read(&attribute) {
                Some(marker) => markers.push(marker),
                None => attributes.push(attribute),
            }
        }
        let (attributes, conditional): (Vec<_>, Vec<_>) =
            attributes.into_iter().partition(|attribute| schedules_in_cfg_attr(attribute).is_empty());
        let hidden = conditional.iter().flat_map(schedules_in_cfg_attr).collect();

        let ahead = input.fork();
        let visibility: Visibility = ahead.parse()?;
        let defaultness = ahead.parse::<Option<Token![default]>>().unwrap_or(None);
        if !starts_function(&ahead) {
            return Ok(Self { attributes, hidden, markers, kind: ItemKind::Other, rest: raw_item(input)? });
        }
        match ahead.parse::<Signature>() {
            Ok(signature) => {
                // The body is a brace group; a `;` or a `macro_rules!` `block` goes the same way.
                let body: Option<TokenTree> = if ahead.is_empty() { None } else { Some(ahead.parse()?) };
                syn::parse::discouraged::Speculative::advance_to(input, &ahead);
                let rest = quote!(#visibility #defaultness #signature #body);
                Ok(Self { attributes, hidden, markers, kind: ItemKind::Method(Box::new(signature)), rest })
            }
            Err(error) => Ok(Self {
                attributes,
                hidden,
                markers,
                kind: ItemKind::Unreadable(error),
                rest: raw_item(input)?,
            }),
        }
    }
}

impl ToTokens for Item {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(self.attributes.iter().map(ToTokens::to_token_stream));
        self.rest.to_tokens(tokens);
    }
}

impl ToTokens for Block {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Self {
            attributes,
            unsafety,
            impl_token,
            generics,
            self_type,
            where_clause,
            inner_attributes,
            items,
            ..
        } = self;
        let of_trait = self.of_trait.as_ref().map(|TraitHeader { path, for_token }| quote!(#path #for_token));
        tokens.extend(quote! {
            #(#attributes)*
            #unsafety #impl_token #generics #of_trait #self_type #where_clause {
                #(#inner_attributes)*
                #(#items)*
            }
        });
    }
}

/// The `#[cfg]`s among the attributes, also those inside `cfg_attr`: they hold for the generated code too.
pub(crate) fn cfgs(attributes: &[Attribute]) -> Vec<Attribute> {
    let mut cfgs = Vec::new();
    for attribute in attributes {
        if attribute.path().is_ident("cfg") {
            cfgs.push(attribute.clone());
        } else if let Some((predicate, inner)) = cfg_attr(attribute) {
            let inner =
                inner.into_iter().filter(|tokens| leading_word(tokens).is_some_and(|word| word == "cfg"));
            cfgs.extend(inner.map(|tokens| -> Attribute { parse_quote!(#[cfg_attr(#predicate, #tokens)]) }));
        }
    }
    cfgs
}

/// The words of schedules inside `cfg_attr`, at any depth.
fn schedules_in_cfg_attr(attribute: &Attribute) -> Vec<Ident> {
    cfg_attr(attribute).into_iter().flat_map(|(_, inner)| inner).flat_map(schedules_in).collect()
}

fn schedules_in(attribute: TokenStream) -> Vec<Ident> {
    let Some(word) = leading_word(&attribute) else { return Vec::new() };
    if MarkerKind::ALL.into_iter().any(|kind| word == kind.word()) {
        return vec![word];
    }
    if word != "cfg_attr" {
        return Vec::new();
    }
    let group = attribute.into_iter().find_map(|token| match token {
        TokenTree::Group(group) => Some(group.stream()),
        _ => None,
    });
    split_at_commas(group.unwrap_or_default())
        .into_iter()
        .skip(1)
        .flat_map(|(tokens, _)| schedules_in(tokens))
        .collect()
}

fn cfg_attr(attribute: &Attribute) -> Option<(TokenStream, Vec<TokenStream>)> {
    if !attribute.path().is_ident("cfg_attr") {
        return None;
    }
    let Meta::List(list) = &attribute.meta else { return None };
    let mut parts = split_at_commas(list.tokens.clone()).into_iter().map(|(tokens, _)| tokens);
    Some((parts.next()?, parts.collect()))
}

/// `every` of `anarchon::every("10s")`.
fn leading_word(attribute: &TokenStream) -> Option<Ident> {
    let mut word = None;
    for token in attribute.clone() {
        match token {
            TokenTree::Ident(ident) => word = Some(ident),
            TokenTree::Punct(punct) if punct.as_char() == ':' => {}
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
                word = leading_word(&group.stream())
            }
            TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => break,
        }
    }
    word
}

/// Reads comma-separated arguments one by one, so that a mistake in one hides none in another.
pub(crate) fn arguments(tokens: TokenStream) -> Vec<Argument> {
    let mut arguments = Vec::new();
    for (part, comma) in split_at_commas(tokens) {
        let mut rest: Vec<TokenTree> = visible(part).into_iter().collect();
        while let Some(end) = missing_comma(&rest) {
            let after = rest.split_off(end);
            arguments.push(argument(rest.into_iter().collect(), None));
            arguments.extend(after.first().cloned().map(Argument::Unseparated));
            rest = after;
        }
        arguments.push(argument(rest.into_iter().collect(), comma));
    }
    arguments
}

/// Where an option or a text follows a literal, as in `"10s" timeout = "5s"`.
fn missing_comma(tokens: &[TokenTree]) -> Option<usize> {
    let begins_argument = |tokens: &[TokenTree]| match tokens {
        [TokenTree::Ident(_), TokenTree::Punct(equals), ..] => equals.as_char() == '=',
        [TokenTree::Literal(literal), ..] => literal.to_string().starts_with('"'),
        _ => false,
    };
    (1..tokens.len())
        .find(|&at| matches!(tokens[at - 1], TokenTree::Literal(_)) && begins_argument(&tokens[at..]))
}

fn argument(tokens: TokenStream, comma: Option<TokenTree>) -> Argument {
    let named = |input: ParseStream| -> syn::Result<(Ident, TokenStream)> {
        let name = input.call(Ident::parse_any)?;
        input.parse::<Token![=]>()?;
        Ok((name, input.parse()?))
    };
    if let (true, Some(comma)) = (tokens.is_empty(), comma) {
        return Argument::Empty(comma);
    }
    match syn::parse::Parser::parse2(named, tokens.clone()) {
        Ok((name, value)) => Argument::Named(name, Value::read(value)),
        Err(_) => Argument::Positional(Value::read(tokens)),
    }
}

impl Value {
    fn read(tokens: TokenStream) -> Self {
        let tokens = visible(tokens);
        Self { literal: syn::parse2(tokens.clone()).ok(), tokens }
    }
}

/// Without the invisible groups that hold the arguments of `macro_rules!`: their place is the macro's, not the user's.
fn visible(tokens: TokenStream) -> TokenStream {
    tokens
        .into_iter()
        .flat_map(|token| match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => visible(group.stream()),
            other => other.into(),
        })
        .collect()
}

/// The parts, each with the comma after it. A trailing comma adds no part.
fn split_at_commas(tokens: TokenStream) -> Vec<(TokenStream, Option<TokenTree>)> {
    let mut parts = Vec::new();
    let mut part = TokenStream::new();
    for token in tokens {
        match token {
            TokenTree::Punct(ref punct) if punct.as_char() == ',' => {
                parts.push((std::mem::take(&mut part), Some(token)));
            }
            other => part.extend([other]),
        }
    }
    if !part.is_empty() {
        parts.push((part, None));
    }
    parts
}

/// `impl<T>` and not `impl <T as Trait>::Type`, as syn decides it.
fn starts_generics(input: ParseStream) -> bool {
    input.peek(Token![<])
        && (input.peek2(Token![>])
            || input.peek2(Token![#])
            || input.peek2(Token![const])
            || (input.peek2(syn::Lifetime) || input.peek2(syn::Ident))
                && (input.peek3(Token![:]) && !input.peek3(Token![::])
                    || input.peek3(Token![,])
                    || input.peek3(Token![>])
                    || input.peek3(Token![=])))
}

/// `const unsafe extern "C" fn` begins a function, `const N: u8` does not.
fn starts_function(input: ParseStream) -> bool {
    let ahead = input.fork();
    while !ahead.is_empty() {
        if ahead.peek(Token![fn]) {
            return true;
        }
        let qualifier = ahead.peek(Token![const])
            || ahead.peek(Token![async])
            || ahead.peek(Token![unsafe])
            || ahead.peek(Token![extern])
            || ahead.peek(syn::LitStr);
        if !qualifier || ahead.parse::<TokenTree>().is_err() {
            return false;
        }
    }
    false
}

/// Up to the `;`, or to the braces of a function or a macro: enough to find where the next item begins.
fn raw_item(input: ParseStream) -> syn::Result<TokenStream> {
    let ahead = input.fork();
    let _: Visibility = ahead.parse()?;
    let until_semicolon = (ahead.peek(Token![const]) && !starts_function(&ahead)) || ahead.peek(Token![type]);
    let mut item = TokenStream::new();
    while !input.is_empty() {
        let token: TokenTree = input.parse()?;
        let ends = match &token {
            TokenTree::Punct(punct) => punct.as_char() == ';',
            TokenTree::Group(group) => !until_semicolon && is_block(group),
            TokenTree::Ident(_) | TokenTree::Literal(_) => false,
        };
        item.extend([token]);
        if ends {
            break;
        }
    }
    Ok(item)
}

fn is_block(group: &Group) -> bool {
    group.delimiter() == Delimiter::Brace
}

/// What stands in the parentheses of `#[jobs(…)]`, comma by comma.
pub(crate) struct BlockArgument {
    pub(crate) name: Ident,
    /// Nothing for a bare word.
    pub(crate) value: Option<TokenStream>,
}

/// # Errors
///
/// One error for each part that is neither a word nor `word = value`.
pub(crate) fn block_arguments(tokens: TokenStream) -> Vec<syn::Result<BlockArgument>> {
    let read = |input: ParseStream| -> syn::Result<BlockArgument> {
        let name = input.call(Ident::parse_any)?;
        let value = match input.parse::<Option<Token![=]>>()? {
            Some(_) => Some(input.parse()?),
            None => None,
        };
        Ok(BlockArgument { name, value })
    };
    split_at_commas(tokens)
        .into_iter()
        .map(|(part, comma)| {
            let place = if part.is_empty() { comma.to_token_stream() } else { part.clone() };
            syn::parse::Parser::parse2(read, part).map_err(|_| {
                syn::Error::new_spanned(place, "`#[jobs]` takes `prefix = \"…\"`, `more` and `crate = …`")
            })
        })
        .collect()
}

/// The types of a signature's typed parameters.
pub(crate) fn typed_parameters(inputs: &Punctuated<syn::FnArg, Token![,]>) -> Vec<&syn::PatType> {
    inputs
        .iter()
        .filter_map(|input| match input {
            syn::FnArg::Typed(parameter) => Some(parameter),
            syn::FnArg::Receiver(_) => None,
        })
        .collect()
}
