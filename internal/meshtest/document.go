package meshtest

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/require"
)

func init() { openapi3filter.RegisterBodyDecoder("text/event-stream", openapi3filter.FileBodyDecoder) }

// A Document is that of the API of an instance.
type Document struct {
	*openapi3.T
	router routers.Router
}

// ReadDocument reads what an instance answers to GET /openapi.json.
func ReadDocument(t testing.TB, text []byte) (d Document) {
	t.Helper()
	var err error
	d.T, err = openapi3.NewLoader().LoadFromData(text)
	require.NoError(t, err)
	require.NoError(t, d.Validate(t.Context()))
	d.router, err = gorillamux.NewRouter(d.T)
	require.NoError(t, err)
	return d
}

// Knows requires that the document has an answer to a request as it was; false: it does not have the request.
func (d Document) Knows(t testing.TB, req *http.Request, status int, header http.Header, body []byte) bool {
	t.Helper()
	route, params, err := d.router.FindRoute(req)
	if err != nil {
		return false
	}
	input := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route}
	err = openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: status, Header: header, Body: io.NopCloser(bytes.NewReader(body))})
	require.NoError(t, err, "%s %s: %s", req.Method, req.URL, body)
	return true
}
