//! What a handler's signature may look like, and what the generated code has to know of it.

use proc_macro2::{Delimiter, Span, TokenTree};
use quote::ToTokens;
use syn::{FnArg, Lifetime, Receiver, ReceiverKind, ReturnType, Safety, Signature, Type};

use crate::diagnostics::Diagnostics;
use crate::parse;

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

const HANDLER_SHAPE: &str = "takes `&self` or no receiver, then at most one `Context` or `&Context`, \
                             and returns `()` or `Result<(), E>`";

impl Handler {
    pub(crate) fn read(signature: &Signature, errors: &mut Diagnostics) -> Option<Self> {
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
        for cfg in
            parameters.iter().flat_map(|parameter| &parameter.attrs).filter(|it| it.path().is_ident("cfg"))
        {
            errors.at(
                cfg,
                "a parameter of a handler cannot be under `cfg`; put it on the method, and write two of them",
            );
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
    let is_shared = match &receiver.kind {
        ReceiverKind::Reference(_, lifetime, None) => !is_static(lifetime.as_ref()),
        ReceiverKind::Reference(_, _, Some(_)) => {
            return errors.at(
                receiver,
                "a handler cannot take `&mut self`, since runs share the value; write `&self` and keep what changes in \
                 a `Mutex` or an atomic",
            );
        }
        ReceiverKind::Typed(_, kind) => is_shared_self(kind),
        _ => {
            return errors.at(
                receiver,
                "a handler cannot take `self` by value, since it runs many times; write `&self`",
            );
        }
    };
    if !is_shared {
        let message = format!(
            "`{}` is no receiver of a handler, which takes `&self` or none, since its runs share the value; write \
             `&self`",
            text_of(receiver)
        );
        errors.at(receiver, message);
    }
}

fn is_shared_self(kind: &Type) -> bool {
    let Type::Reference(reference) = kind else { return false };
    reference.mutability.is_none()
        && !is_static(reference.lifetime.as_ref())
        && matches!(&*reference.elem, Type::Path(path) if path.path.is_ident("Self"))
}

fn is_static(lifetime: Option<&Lifetime>) -> bool {
    lifetime.is_some_and(|lifetime| lifetime.ident == "static")
}

/// Says what tokens show; names are left to the compiler, which knows what they stand for.
fn refuse_parameter(parameter: &Type, errors: &mut Diagnostics) {
    let refused = match parameter {
        Type::Group(group) => return refuse_parameter(&group.elem, errors),
        Type::Paren(inner) => return refuse_parameter(&inner.elem, errors),
        Type::Reference(reference) => {
            is_static(reference.lifetime.as_ref())
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
fn text_of(written: &impl ToTokens) -> String {
    written
        .to_token_stream()
        .to_string()
        .replace(" :: ", "::")
        .replace(" : ", ": ")
        .replace("& ", "&")
        .replace(" <", "<")
        .replace("< ", "<")
        .replace(" >", ">")
}

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
