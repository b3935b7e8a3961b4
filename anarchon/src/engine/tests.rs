//! The engine against hand-written replies.
