package spoke

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
)

// What tells an agent of its task is in the directory of its door, which it only reads: it is no part of what it works on, and not taken
// for work that it leaves.
const (
	promptFile  = "prompt"
	changesFile = "review"
	inputsFile  = "inputs.json"
)

// writeGiven writes what an attempt is to do, what of it a review wants changed and the list of its inputs, and says where they are.
func (s *Spoke) writeGiven(ctx context.Context, r *run, prompt string, ids map[string]string) error {
	review, err := s.sentBack(ctx, r)
	if err != nil {
		return err
	}
	inputs, err := r.inputs()
	if err != nil {
		return err
	}
	if review.Message != "" {
		ids[runtime.ReviewVariable] = review.Verdict
	}
	for _, f := range []struct{ variable, name, text string }{
		{runtime.PromptVariable, promptFile, commands.Rework(prompt, review.Message)},
		{runtime.ChangesVariable, changesFile, review.Message},
		{runtime.InputsVariable, inputsFile, inputs},
	} {
		if f.text == "" {
			continue
		}
		if err := write(r.own().Door, []placed{{path: f.name, content: f.text, mode: 0o400}}); err != nil {
			return fmt.Errorf("telling an agent its task: %w", err)
		}
		ids[f.variable] = filepath.Join(r.own().Door, f.name)
	}
	return nil
}

// inputs is the list of what an order gives to its agent, in JSON; "" = nothing.
func (r *run) inputs() (string, error) {
	given := r.given()
	if len(given) == 0 {
		return "", nil
	}
	raw, err := json.MarshalIndent(given, "", "  ")
	if err != nil {
		return "", fmt.Errorf("telling an agent its inputs: %w", err)
	}
	return string(raw) + "\n", nil
}

// given are the files and inputs of an order, where its agent finds them.
func (r *run) given() (list []commands.Given) {
	at := func(path string) string { return filepath.Join(r.own().Work, path) }
	for _, f := range r.spec.Files {
		list = append(list, commands.Given{Kind: commands.InputFile, Path: at(f.Path)})
	}
	for _, in := range r.spec.Inputs {
		list = append(list, commands.Given{Kind: in.Kind, Path: at(in.Path), Commit: in.Tip, Digest: in.Digest, Size: in.Size})
	}
	return list
}
