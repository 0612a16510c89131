package tracing

import (
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// The types of a request as OTLP writes them in JSON: ids in hexadecimal, enumerations as numbers, times as
// text. Every attribute is a text here.
type (
	exportRequest struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   otlpResource `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	otlpResource struct {
		Attributes []otlpAttribute `json:"attributes"`
	}
	scopeSpans struct {
		Scope struct {
			Name string `json:"name"`
		} `json:"scope"`
		Spans []otlpSpan `json:"spans"`
	}
	otlpSpan struct {
		TraceID    string          `json:"traceId"`
		SpanID     string          `json:"spanId"`
		Parent     string          `json:"parentSpanId,omitempty"`
		Flags      uint32          `json:"flags"`
		Name       string          `json:"name"`
		Kind       int             `json:"kind"`
		Start      string          `json:"startTimeUnixNano"`
		End        string          `json:"endTimeUnixNano"`
		Attributes []otlpAttribute `json:"attributes,omitempty"`
		Status     *otlpStatus     `json:"status,omitempty"`
	}
	otlpStatus struct {
		Message string `json:"message"`
		Code    int    `json:"code"`
	}
	otlpAttribute struct {
		Key   string    `json:"key"`
		Value otlpValue `json:"value"`
	}
	otlpValue struct {
		String string `json:"stringValue"`
	}
)

const statusError = 2 // STATUS_CODE_ERROR

// requestOf is what says spans of one tracer.
func requestOf(spans []sdk.ReadOnlySpan) exportRequest {
	var scope scopeSpans
	r := resourceSpans{Resource: otlpResource{Attributes: []otlpAttribute{}}}
	for _, s := range spans {
		scope.Scope.Name, r.Resource.Attributes = s.InstrumentationScope().Name, attributesAs(s.Resource().Attributes())
		scope.Spans = append(scope.Spans, spanOf(s))
	}
	r.ScopeSpans = []scopeSpans{scope}
	return exportRequest{[]resourceSpans{r}}
}

func spanOf(s sdk.ReadOnlySpan) otlpSpan {
	c := s.SpanContext()
	v := otlpSpan{TraceID: c.TraceID().String(), SpanID: c.SpanID().String(), Flags: uint32(c.TraceFlags()), Name: s.Name(), Kind: int(s.SpanKind()),
		Start: strconv.FormatInt(s.StartTime().UnixNano(), 10), End: strconv.FormatInt(s.EndTime().UnixNano(), 10), Attributes: attributesAs(s.Attributes())}
	if s.Parent().HasSpanID() {
		v.Parent = s.Parent().SpanID().String()
	}
	if s.Status().Code == codes.Error {
		v.Status = &otlpStatus{s.Status().Description, statusError}
	}
	return v
}

func attributesAs(list []attribute.KeyValue) []otlpAttribute {
	out := make([]otlpAttribute, 0, len(list))
	for _, a := range list {
		out = append(out, otlpAttribute{string(a.Key), otlpValue{a.Value.String()}})
	}
	return out
}
