"""The built-in compiler: tensor IR to native code through LLVM."""
