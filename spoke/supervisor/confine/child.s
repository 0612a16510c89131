// Functions without a body are allowed only in a package that has a file such as this one.
