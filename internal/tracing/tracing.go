// Package tracing tells an OpenTelemetry collector what an order goes through: given by a hub, taken by
// a spoke, its agent started, and run.
//
// A span is told when it is over, with the times that are known then: an agent outlives the process that
// started it, and whoever saw its end tells of all of it. What a span is called by others, its context, is
// decided before: it is in the signed order, and in the environment of the agent.
//
// Traces are for looking at, and no record: one that cannot be sent is dropped, and nothing waits for it.
// They name tasks, spokes and outcomes, and nothing that an order starts, is given or writes.
package tracing

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// A Tracer tells spans to a collector. A nil one tells nobody.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// Who tells: an instance, and the program that it runs.
type Who struct {
	Instance, Version string
	Headers           string // of each request, as OTEL_EXPORTER_OTLP_HEADERS has them; they may be secret
}

// Open returns a tracer that tells the collector at endpoint, which [CheckEndpoint] has found good. What
// cannot be told is logged, once for a row of failures.
func Open(endpoint string, who Who, log *slog.Logger) (*Tracer, error) {
	e, err := newExporter(endpoint, who.Headers, log)
	if err != nil {
		return nil, err
	}
	about := resource.NewSchemaless(attribute.String("service.name", "spawnmesh"), attribute.String("service.version", who.Version),
		attribute.String("service.instance.id", who.Instance))
	p := sdk.NewTracerProvider(sdk.WithBatcher(e, sdk.WithBatchTimeout(time.Second)), sdk.WithResource(about), sdk.WithIDGenerator(chosen{}),
		sdk.WithSampler(sdk.ParentBased(sdk.AlwaysSample())))
	return &Tracer{p, p.Tracer("spawnmesh")}, nil
}

// Close tells what is not told yet, as long as ctx lasts.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// On reports whether spans are told.
func (t *Tracer) On() bool { return t != nil }

// A Span is something that is over. Self and Parent are contexts; without Parent a trace begins.
type Span struct {
	Name         string
	Self, Parent string
	From, To     time.Time
	About        []string // names, each with its value
	Problem      string   // a code or an outcome; "" where all went well
}

// Tell tells a span. One without a context of its own belongs to no trace, and is not told.
func (t *Tracer) Tell(s Span) {
	self, ok := parse(s.Self)
	if t == nil || !ok {
		return
	}
	ctx := context.WithValue(context.Background(), chosenKey{}, self)
	if parent, ok := parse(s.Parent); ok {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	_, span := t.tracer.Start(ctx, s.Name, trace.WithTimestamp(s.From), trace.WithAttributes(attributesOf(s.About)...))
	if s.Problem != "" {
		span.SetStatus(codes.Error, s.Problem)
	}
	span.End(trace.WithTimestamp(s.To))
}

// attributesOf are those of a span: names of the product, each with its value.
func attributesOf(about []string) (list []attribute.KeyValue) {
	for i := 0; i+1 < len(about); i += 2 {
		list = append(list, attribute.String("spawnmesh."+about[i], about[i+1]))
	}
	return list
}

// chosen gives a span the ids of its context.
type chosen struct{}

type chosenKey struct{}

func (chosen) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	c := ctx.Value(chosenKey{}).(trace.SpanContext) // as Tell makes it
	return c.TraceID(), c.SpanID()
}

func (chosen) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	return ctx.Value(chosenKey{}).(trace.SpanContext).SpanID() // as Tell makes it
}
