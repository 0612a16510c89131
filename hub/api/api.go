// Package api is the one API of an instance: its description in openapi.yaml, and what is
// generated from that, which is the types, the server's interface and the client.
//
// The types here are those of the wire. What serves them maps to and from those of the rooms that
// do the work.
package api

import (
	_ "embed"
	"fmt"
	"sync"

	"github.com/goccy/go-yaml"
)

//go:generate go build -C ../../scripts/tools -o ../../bin/oapi-codegen github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen
//go:generate ../../bin/oapi-codegen -config codegen.yaml -o api.gen.go openapi.yaml

// Base is where the API is served.
const Base = "/api/v1"

//go:embed openapi.yaml
var description []byte

// Document returns the description as JSON.
var Document = sync.OnceValues(func() ([]byte, error) {
	text, err := yaml.YAMLToJSON(description)
	if err != nil {
		return nil, fmt.Errorf("reading the description of the API: %w", err)
	}
	return text, nil
})
