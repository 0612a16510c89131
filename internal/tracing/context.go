package tracing

import (
	"context"
	"crypto/rand"
	"crypto/sha256"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Header is the name of a context in a request, and Variable in an environment (W3C Trace Context, and
// OpenTelemetry's environment variables as carriers).
const Header, Variable = "traceparent", "TRACEPARENT"

// Begin returns the context of a new span below parent, or of a new trace where that is "".
func Begin(parent string) string {
	var id trace.SpanID
	_, _ = rand.Read(id[:]) // never fails
	return below(parent, id)
}

// Named returns the context of the span below parent that has this name: the same for whoever asks, also
// after a restart. Without a parent there is none.
func Named(parent, name string) string {
	if _, ok := parse(parent); !ok {
		return ""
	}
	sum := sha256.Sum256([]byte(parent + "\x00" + name))
	return below(parent, trace.SpanID(sum[:8]))
}

func below(parent string, id trace.SpanID) string {
	p, ok := parse(parent)
	if !ok {
		var first trace.TraceID
		_, _ = rand.Read(first[:]) // never fails
		p = trace.NewSpanContext(trace.SpanContextConfig{TraceID: first, TraceFlags: trace.FlagsSampled})
	}
	return written(p.WithSpanID(id))
}

// written is a context as text, of version 00.
func written(c trace.SpanContext) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), c), carrier)
	return carrier[Header]
}

// parse reads a context; what is none is not ok.
func parse(text string) (trace.SpanContext, bool) {
	c := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{Header: text}))
	return c, c.IsValid()
}

type parentKey struct{}

// WithParent returns ctx with the context that a request came with; one that is none is left out, and one of a
// later version is written as one of version 00.
func WithParent(ctx context.Context, parent string) context.Context {
	c, ok := parse(parent)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, parentKey{}, written(c))
}

// ParentOf returns the context that a request came with, "" where it came with none.
func ParentOf(ctx context.Context) string {
	parent, _ := ctx.Value(parentKey{}).(string)
	return parent
}
