package main
import "context"
func accept(ctx context.Context, o options) error { return nil }
