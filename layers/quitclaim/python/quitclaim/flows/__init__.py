"""One function per thing that can be asked for; each says what a crash leaves behind."""
