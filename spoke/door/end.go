package door

import (
	"context"
	"net/http"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// maxWord bounds what an agent may say of its end once it is encoded: a result has other parts, too.
const maxWord = 100 << 10

// A Done is what an agent says of the work that it has done.
type Done struct {
	Summary   string  `json:"summary,omitempty"`
	Data      string  `json:"data,omitempty"` // JSON
	Artifacts []Named `json:"artifacts,omitempty"`
}

// A Named file is one that an agent leaves.
type Named struct {
	Name string `json:"name"`
	Path string `json:"path"` // from its working directory, or absolute and inside of it
}

// A Failed says why an agent could not do its work.
type Failed struct {
	Reason string `json:"reason"`
	Final  bool   `json:"final,omitempty"` // it is of no use to try again
}

func (d *Door) done(r *http.Request, in Done) (Noted, error) {
	return d.sayEnd(r.Context(), commands.Word{Report: commands.Report{As: commands.SaidDone, Text: in.Summary}, Data: in.Data}, in.Artifacts)
}

func (d *Door) fail(r *http.Request, in Failed) (Noted, error) {
	return d.sayEnd(r.Context(), commands.Word{Report: commands.Report{As: commands.SaidFailed, Text: in.Reason, Final: in.Final}}, nil)
}

// sayEnd keeps the word, with the files that the agent leaves. The last one before the end counts.
func (d *Door) sayEnd(ctx context.Context, w commands.Word, files []Named) (n Noted, err error) {
	if err := d.hideIn(ctx, w.Validate, &w.Data, &w.Text); err != nil {
		return n, err
	}
	if w.Artifacts, err = d.describe(ctx, files); err != nil {
		return n, err
	}
	if err := w.Validate(); err != nil {
		return n, err
	}
	raw, err := signing.EncodeBody(&commands.Result{Reported: &w.Report, Data: w.Data, Artifacts: w.Artifacts})
	if err == nil && len(raw) > maxWord {
		err = commands.Refuse(commands.PayloadTooLarge, "what the agent says of its end is %d bytes as a message, limit %d", len(raw), maxWord).Hinting("leave more of it in files, and name them as artifacts")
	}
	if err != nil {
		return n, err
	}
	d.room.Ending()
	n.At, err = d.room.Backlog.SayEnd(ctx, d.room.Fence, w)
	return n, err
}
