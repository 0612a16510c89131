package node

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

// How many fires one answer has, and how many times at which one schedule is due next.
const (
	usualFires = 50
	mostFires  = 1000
	nextTimes  = 5
)

// ListSchedules implements [api.StrictServerInterface].
func (s resources) ListSchedules(ctx context.Context, _ api.ListSchedulesRequestObject) (api.ListSchedulesResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	list, err := h.DB.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	stand, err := h.Stand(ctx, mapped(list, func(v store.Schedule) string { return v.LastTask }))
	all := h.Connections()
	return api.ListSchedules200JSONResponse{Items: mapped(list, func(v store.Schedule) api.Schedule { return scheduleOf(ctx, v, all, 1, stand) })}, err
}

// CreateSchedule implements [api.StrictServerInterface].
func (s resources) CreateSchedule(ctx context.Context, r api.CreateScheduleRequestObject) (api.CreateScheduleResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	b := r.Body
	v, note, err := h.CreateSchedule(ctx, hub.NewSchedule{Name: b.Name, Cron: b.Cron, Zone: b.Zone, Overlap: string(b.Overlap), Order: hub.RequestOf(b.Task)}, control.CallerOf(ctx).String())
	made := oneSchedule(ctx, h, v)
	made.Note = note
	return api.CreateSchedule200JSONResponse{OneScheduleJSONResponse: made}, err
}

// GetSchedule implements [api.StrictServerInterface].
func (s resources) GetSchedule(ctx context.Context, r api.GetScheduleRequestObject) (api.GetScheduleResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	v, err := h.DB.FindSchedule(ctx, r.Schedule)
	if err != nil {
		return nil, err
	}
	stand, err := h.Stand(ctx, []string{v.LastTask})
	return api.GetSchedule200JSONResponse{OneScheduleJSONResponse: api.OneScheduleJSONResponse(scheduleOf(ctx, v, h.Connections(), nextTimes, stand))}, err
}

// ChangeSchedule implements [api.StrictServerInterface].
func (s resources) ChangeSchedule(ctx context.Context, r api.ChangeScheduleRequestObject) (api.ChangeScheduleResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	b := r.Body
	actor := control.CallerOf(ctx).String()
	v, err := h.ChangeSchedule(ctx, r.Schedule, hub.ScheduleChange{Cron: b.Cron, Zone: b.Zone, Overlap: string(b.Overlap), State: string(b.State), Reason: b.Reason}, actor)
	changed := oneSchedule(ctx, h, v)
	changed.Already = b.State == api.ScheduleStatePaused && (v.PausedBy != actor || v.Why != strings.TrimSpace(b.Reason))
	return api.ChangeSchedule200JSONResponse{OneScheduleJSONResponse: changed}, err
}

// DeleteSchedule implements [api.StrictServerInterface].
func (s resources) DeleteSchedule(ctx context.Context, r api.DeleteScheduleRequestObject) (api.DeleteScheduleResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	reason := strings.TrimSpace(r.Params.Reason)
	if err := commands.CheckReason(reason); err != nil {
		return nil, err
	}
	v, err := h.DB.RemoveSchedule(context.WithoutCancel(ctx), r.Schedule, control.CallerOf(ctx).String(), reason)
	return api.DeleteSchedule200JSONResponse{OneScheduleJSONResponse: oneSchedule(ctx, h, v)}, err
}

// RunSchedule implements [api.StrictServerInterface].
func (s resources) RunSchedule(ctx context.Context, r api.RunScheduleRequestObject) (api.RunScheduleResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	v, err := h.RunSchedule(ctx, r.Schedule, r.Params.IdempotencyKey, control.CallerOf(ctx).String())
	if err != nil {
		return nil, err
	}
	o := v.Ordered
	return api.RunSchedule200JSONResponse{ID: o.Task, ShortID: commands.ShortID(o.Task), Spoke: o.Spoke, Existing: o.Existing}, nil
}

// ListFires implements [api.StrictServerInterface].
func (s resources) ListFires(ctx context.Context, r api.ListFiresRequestObject) (api.ListFiresResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(r.Params.Limit, usualFires, mostFires)
	if err != nil {
		return nil, err
	}
	before, err := seqOf(r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	v, err := h.DB.FindSchedule(ctx, r.Schedule)
	if err != nil {
		return nil, err
	}
	list, err := h.DB.Fires(ctx, v.ID, before, limit)
	if err != nil {
		return nil, err
	}
	stand, err := h.Stand(ctx, mapped(list, func(f store.Fire) string { return f.Task }))
	page := api.FireList{Items: mapped(list, func(f store.Fire) api.Fire { return seenFire(ctx, fireOf(f, stand)) })}
	if len(list) == limit {
		page.Next = cursorOf(strconv.FormatInt(list[limit-1].Seq, 10))
	}
	return api.ListFires200JSONResponse(page), err
}

// oneSchedule is a schedule as an answer to a change of it, which does not look how its last agent stands.
func oneSchedule(ctx context.Context, h *hub.Hub, v store.Schedule) api.OneScheduleJSONResponse {
	return api.OneScheduleJSONResponse(scheduleOf(ctx, v, h.Connections(), nextTimes, nil))
}

// scheduleOf is a schedule as who asks may see it, with the next n times at which it is due; all is of
// [hub.Hub.Connections], stand of [hub.Hub.Stand].
func scheduleOf(ctx context.Context, v store.Schedule, all []store.Connection, n int, stand map[string]string) api.Schedule {
	t := v.Template
	s := api.Schedule{ID: v.ID, Name: v.Name, Cron: v.Cron, Zone: v.Zone, Overlap: api.Overlap(v.Overlap), State: api.ScheduleState(v.State), Why: v.Why, Restored: v.Restored,
		PausedBy: v.PausedBy, PausedAt: when(v.PausedAt), OrdersNothing: hub.OrdersNothing(v, all), Next: inUTC(hub.Upcoming(v, n)),
		LastFiredAt: when(v.LastFired), LastTask: v.LastTask, LastTaskStands: stand[v.LastTask], Outcome: v.Outcome.Is, OutcomeCode: string(v.Outcome.Code), OutcomeWhy: v.Outcome.Why, OutcomeSince: when(v.Outcome.Since), Spoke: t.Spoke, Any: t.Any, ExpiresInMS: t.LifeMS, Labels: api.Labels(t.Labels),
		CreatedBy: v.CreatedBy, CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt}
	if t.Spawn != nil { // else there is none
		s.Title = t.Spawn.Title
		s.Spec, _ = json.Marshal(t.Spawn) // it was read from JSON
	}
	return seenSchedule(ctx, s)
}

func inUTC(list []time.Time) []time.Time { return mapped(list, time.Time.UTC) }

func fireOf(f store.Fire, stand map[string]string) api.Fire {
	return api.Fire{Seq: f.Seq, DueAt: when(f.Due), At: f.At, Outcome: f.Outcome, Missed: f.Missed, Task: f.Task, TaskStands: stand[f.Task], Code: string(f.Code), Why: f.Why, Actor: f.Actor}
}
