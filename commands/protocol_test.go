package commands

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/signing"
)

// sections of docs/protocol.md by their headings.
func sections(t *testing.T) map[string]string {
	t.Helper()
	raw, err := os.ReadFile("../docs/protocol.md")
	require.NoError(t, err)
	out, heading := map[string]string{}, ""
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "#") {
			heading = strings.Trim(line, "#` \n")
			continue
		}
		out[heading] += line
	}
	return out
}

var fieldRow = regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| ([^|]+) \\| (yes|opt) \\|")

// fieldsOf lists the JSON fields of a type as the page does, and the objects in them.
func fieldsOf(typ reflect.Type, objects map[string]reflect.Type) (list []string) {
	for f := range typ.Fields() {
		if f.Anonymous {
			list = append(list, fieldsOf(f.Type, objects)...)
			continue
		}
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		there := "yes"
		if option == "omitempty" {
			there = "opt"
		}
		list = append(list, name+" "+typeText(f.Type, objects)+" "+there)
	}
	return list
}

func typeText(typ reflect.Type, objects map[string]reflect.Type) string {
	switch typ.Kind() {
	case reflect.Pointer:
		return typeText(typ.Elem(), objects)
	case reflect.Slice:
		if typ.Elem().Kind() == reflect.Uint8 {
			return "base64"
		}
		return "[" + typeText(typ.Elem(), objects) + "]"
	case reflect.Struct:
		objects[typ.Name()] = typ
		return typ.Name()
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Float64:
		return "number"
	}
	return "integer"
}

// The tables of the page name every field of every kind, with its type, in its order.
func TestProtocolPageHasEveryField(t *testing.T) {
	page := sections(t)
	types := map[string]reflect.Type{}
	for kind, k := range kinds {
		types[string(kind)] = reflect.TypeOf(k.body()).Elem()
	}
	for len(types) > 0 {
		objects := map[string]reflect.Type{}
		for name, typ := range types {
			var told []string
			for _, row := range fieldRow.FindAllStringSubmatch(page[name], -1) {
				told = append(told, strings.Join(row[1:], " "))
			}
			require.Equal(t, fieldsOf(typ, objects), told, "the fields of %s", name)
		}
		types = objects
	}
}

// The heartbeat that the page shows is a valid one.
func TestProtocolPageShowsAHeartbeat(t *testing.T) {
	_, example, _ := strings.Cut(sections(t)["7.6 Histories"], "```json\n")
	example, _, _ = strings.Cut(example, "```")
	var b Heartbeat
	require.NoError(t, decodeBody([]byte(example), &b))
	require.NoError(t, b.Validate())
	require.NotNil(t, b.Connection.Numbers.Digest)
}

// constants returns the values of the constants of a type in a Go file.
func constants(t *testing.T, file, typ string) (list []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			if id, ok := v.Type.(*ast.Ident); ok && id.Name == typ {
				text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				require.NoError(t, err)
				list = append(list, text)
			}
		}
		return true
	})
	return list
}

var quotedWord = regexp.MustCompile("`([A-Za-z0-9_]+)`")

// The closed lists of the page are those of the program.
func TestProtocolPageHasTheClosedLists(t *testing.T) {
	page := sections(t)
	states, reasons := []string{}, []string{}
	for _, s := range States {
		states = append(states, string(s))
	}
	for _, r := range Reasons {
		reasons = append(reasons, string(r))
	}
	told := func(heading string) (list []string) {
		for _, w := range quotedWord.FindAllStringSubmatch(page[heading], -1) {
			if !slices.Contains(list, w[1]) {
				list = append(list, w[1])
			}
		}
		return list
	}
	require.Equal(t, states, told("States of a task"))
	require.Equal(t, reasons, told("Reasons"))
	breaches := []string{}
	for _, r := range Breaches {
		breaches = append(breaches, string(r))
	}
	require.Equal(t, breaches, told("Limits of an agent"))
	require.Equal(t, BreachUnits, told("Units of a limit"))
	require.Subset(t, told("Outcomes"), constants(t, "receipt.go", "Outcome"))
	require.Equal(t, []string{RuntimeExec, RuntimeNoop}, told("Runtimes"))
	require.Equal(t, []string{LossFails, LossReruns}, told("Losses"))
	require.Equal(t, Streams, told("Streams"))
	require.Equal(t, connStates, told("Connection states"))
	require.Equal(t, Declines, told("Reasons to decline"))
	require.Equal(t, constants(t, "../signing/code.go", "Code"), told("Codes of an envelope"))
	require.Subset(t, append(told("Codes of a message"), told("Codes that stay within an instance")...), constants(t, "refused.go", "Code"))
}

// What a reader of the vectors takes has a body that this vocabulary takes, too.
func TestBodiesOfVectors(t *testing.T) {
	raw, err := os.ReadFile("../signing/testdata/envelope.json")
	require.NoError(t, err)
	var f struct {
		Connection string
		Epoch      int64
		Self       signing.InstanceID
		NowMS      int64 `json:"now_ms"`
		Keys       []struct {
			Iss    signing.InstanceID
			Kid    signing.KeyID
			PubHex string `json:"pub_hex"`
		}
		Cases []struct {
			Name, Expect string
			WireB64      string `json:"wire_b64"`
			NowMS        int64  `json:"now_ms"`
		}
	}
	require.NoError(t, json.Unmarshal(raw, &f))
	v := signing.Verifier{Self: f.Self, Conn: f.Connection, Epoch: f.Epoch, Keys: map[signing.KeyID]signing.PeerKey{}}
	for _, k := range f.Keys {
		pub, err := hex.DecodeString(k.PubHex)
		require.NoError(t, err)
		v.Keys[k.Kid] = signing.PeerKey{ID: k.Kid, Owner: k.Iss, Public: pub}
	}
	taken := 0
	for _, c := range f.Cases {
		wire, _ := base64.StdEncoding.DecodeString(c.WireB64) // what is none, opens as nothing
		o, err := v.Open(wire, time.UnixMilli(max(f.NowMS, c.NowMS)))
		if err != nil {
			continue
		}
		taken++
		_, err = Parse(o)
		require.NoError(t, err, c.Name)
	}
	require.Greater(t, taken, 20)
}
