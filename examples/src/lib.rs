//! The runnable examples of anarchon live beside this file, one idea each.

// The program of the README compiles.
#![cfg_attr(doctest, doc = include_str!("../../README.md"))]
