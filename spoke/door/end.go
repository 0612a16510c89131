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

func (d *Door) done(r *http.Request, in Done) (n Noted, err error) {
	w := commands.Word{Report: commands.Report{As: commands.SaidDone, Text: in.Summary}, Data: in.Data}
	if err := w.Validate(); err != nil { // before anything of it is looked at
		return n, err
	}
	d.hide(&w.Text)
	if err := d.hideData(r.Context(), &w.Data); err != nil {
		return n, err
	}
	if len(in.Artifacts) > commands.MaxArtifacts {
		return n, commands.Refuse(commands.Validation, "%d artifacts are named, limit %d", len(in.Artifacts), commands.MaxArtifacts)
	}
	if len(in.Artifacts) > 0 {
		if w.Artifacts, err = d.describe(r.Context(), in.Artifacts); err != nil {
			return n, err
		}
	}
	return d.sayEnd(r.Context(), w)
}

func (d *Door) fail(r *http.Request, in Failed) (Noted, error) {
	d.hide(&in.Reason)
	return d.sayEnd(r.Context(), commands.Word{Report: commands.Report{As: commands.SaidFailed, Text: in.Reason}, Final: in.Final})
}

// sayEnd keeps the word. The last one before the end counts.
func (d *Door) sayEnd(ctx context.Context, w commands.Word) (n Noted, err error) {
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
