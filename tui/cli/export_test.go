package cli

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"holdfast/tui/text"
)

func TestExportsAreWhatLsPrints(t *testing.T) {
	a := &app{Env: Env{Output: true, Width: 20, Getenv: func(string) string { return "" }}, color: text.ColorAlways}
	snap := sample()
	for _, e := range snap.Entries { // as a watcher that runs gives them
		v := &e.Verdict
		v.Evidence, v.Originals, v.Next = nil, nil, nil
	}
	slices.Reverse(snap.Entries)
	before := slices.Clone(snap.Entries)
	got := map[string]string{}
	for _, x := range a.exports() {
		var b bytes.Buffer
		if err := x.Write(&b, snap); err != nil {
			t.Fatal(err)
		}
		got[x.Ext] = b.String()
	}
	if !slices.Equal(snap.Entries, before) {
		t.Error("the snapshot, which others look at, is in another order")
	}
	var doc map[string]any
	if err := json.Unmarshal([]byte(got["json"]), &doc); err != nil {
		t.Fatal(err)
	}
	if entries, _ := doc["entries"].([]any); len(entries) != len(snap.Entries) || doc["schema"] != float64(schema) {
		t.Errorf("%d of %d entries, schema %v", len(entries), len(snap.Entries), doc["schema"])
	}
	for _, e := range doc["entries"].([]any) {
		if evidence, _ := e.(map[string]any)["evidence"].([]any); len(evidence) == 0 {
			t.Errorf("without evidence: %v", e)
		}
	}
	if strings.Contains(got["json"], "secret-session") {
		t.Error("a session id is exported unasked")
	}
	var want bytes.Buffer
	entries := snap.Entries
	(&app{Env: Env{Getenv: func(string) string { return "" }}, color: text.ColorNever}).table(&want, snap, entries, false)
	if got["txt"] != want.String() || len(entries) == 0 || entries[0] == nil {
		t.Errorf("got\n%s\nwant\n%s", got["txt"], want.String())
	}
}
