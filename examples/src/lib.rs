//! The runnable examples of anarchon live beside this file, one idea each.
