package door

import (
	"net/http"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// An Ask is a question as an agent asks it.
type Ask struct {
	Key        string   `json:"key"` // its own name of the question
	Text       string   `json:"text"`
	Options    []string `json:"options,omitempty"`
	Default    string   `json:"default,omitempty"`
	Data       string   `json:"data,omitempty"`
	DeadlineMS int64    `json:"deadline_ms,omitempty"` // from now on; 0 = a day
}

// Of a wait for an answer: at most so long in one request, and looked at so often without news.
const (
	longestWait = 30 * time.Second
	lookAgain   = 5 * time.Second
	startTime   = 10 * time.Second // that the proof of a start may take to be stored: an agent can be quicker
)

func (d *Door) ask(r *http.Request, a Ask) (backlog.Question, error) {
	i := backlog.Inquiry{Key: a.Key, What: commands.Question{Text: a.Text, Options: a.Options, Default: a.Default, Data: a.Data}, For: commands.DefaultQuestionFor}
	if a.DeadlineMS != 0 {
		i.For = time.Duration(min(max(a.DeadlineMS, 0), commands.MaxQuestionFor.Milliseconds()+1)) * time.Millisecond
	}
	for until := time.Now().Add(startTime); ; {
		q, err := d.room.Backlog.Ask(r.Context(), d.room.Fence, i)
		if commands.CodeOf(err) != commands.NotReady || time.Now().After(until) {
			return q, err
		}
		select {
		case <-r.Context().Done():
			return q, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// await returns a question once it is closed, or as it stands after the wait. An attempt that was replaced waits for nothing.
func (d *Door) await(r *http.Request) (backlog.Question, error) {
	wait := longestWait
	if text := r.URL.Query().Get("wait"); text != "" {
		asked, err := time.ParseDuration(text)
		if err != nil || asked < 0 {
			return backlog.Question{}, commands.Refuse(commands.Validation, "wait is a time such as 30s, not %q", commands.Clip(text))
		}
		wait = min(asked, longestWait)
	}
	if ids, ok := commands.NamedIDs(r.PathValue("question")); !ok || ids.Tail || ids.Low != ids.High {
		return backlog.Question{}, commands.Refuse(commands.NotFound, "no question %s here", commands.Clip(r.PathValue("question")))
	}
	over := time.After(wait)
	for {
		news := d.room.News()
		q, err := d.room.Backlog.Question(r.Context(), r.PathValue("question"))
		if err == nil && q.Task != d.room.Fence.Task {
			err = commands.Refuse(commands.NotFound, "no question %s here", commands.Clip(q.ID))
		}
		if err == nil && q.State == commands.QuestionOpen {
			_, err = d.room.Backlog.Heard(r.Context(), d.room.Fence)
		}
		if err != nil || q.State != commands.QuestionOpen {
			return q, err
		}
		select {
		case <-r.Context().Done():
			return q, r.Context().Err()
		case <-over:
			return q, nil
		case <-news:
			// Of many changes few are answers: they are looked at together.
			select {
			case <-r.Context().Done():
			case <-time.After(50 * time.Millisecond):
			}
		case <-time.After(lookAgain):
		}
	}
}
