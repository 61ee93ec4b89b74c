package watch

import (
	"path/filepath"
	"slices"
	"testing"

	"holdfast/fslock/verdict"
)

// A command that is shown is pasted elsewhere: it must find the same lease there.
func TestNextCommandsNameTheRootThatNobodyWouldLookIn(t *testing.T) {
	lease := func(root, dir, id string) *Entry {
		return &Entry{Kind: Lease, Root: root, Path: filepath.Join(root, dir, id+".lease.json"), ID: id}
	}
	here, home := filepath.FromSlash("/my root"), filepath.FromSlash("/home/.agentmux/shared")
	leases := filepath.Join(here, "leases")
	file := filepath.Join(leases, "f.lease.json")
	s := &Snapshot{
		Roots: []Root{
			{Path: here, Kind: "agentmux", ChosenBy: "argument"},
			{Path: home, Kind: "agentmux", ChosenBy: byDefault},
			{Path: file, Kind: "file", ChosenBy: "argument"},
		},
		Entries: []*Entry{
			lease(here, "leases", "a"), lease(home, "agents/registry/leases", "b"),
			lease(here, "leases", "twice"), lease(home, "leases", "twice"),
			{Kind: Lease, Root: file, Path: file, ID: "f"},
			{Kind: Lock, Root: here, Path: filepath.Join(here, "x.lock")},
		},
	}
	for i, want := range []string{
		" --root " + verdict.Quote(here), "", " --root " + verdict.Quote(leases),
		" --root " + verdict.Quote(filepath.Join(home, "leases")), " --root " + verdict.Quote(leases), "",
	} {
		v := &verdict.Verdict{Next: []string{"kill -CONT 5", "holdfast epoch x", "holdfast claim x --hold", "holdfast why x"}}
		got := s.Next(s.Entries[i], v)
		if !slices.Equal(got, []string{"kill -CONT 5", "holdfast epoch x" + want, "holdfast claim x --hold" + want, "holdfast why x" + want}) {
			t.Errorf("%s: %q", s.Entries[i].Path, got)
		}
		if v.Next[1] != "holdfast epoch x" {
			t.Error("the verdict was changed")
		}
	}
}
