package watch

import (
	"context"
	"testing"
)

func TestLookedCountsWhatALookHasListed(t *testing.T) {
	root, _ := crafted(t)
	w := &Watcher{Roots: []Root{{Path: root}}}
	if n := w.Looked(); n != 0 {
		t.Fatalf("%d before any look", n)
	}
	for looks := 1; looks <= 2; looks++ {
		s, err := w.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n, want := w.Looked(), looks*len(s.Entries); n != want {
			t.Errorf("%d after %d looks at %d entries", n, looks, len(s.Entries))
		}
	}
}

func TestRunLeavesTheEvidenceToWhoeverAsks(t *testing.T) {
	root, _ := crafted(t)
	w := &Watcher{Roots: []Root{{Path: root}}}
	ctx, cancel := context.WithCancel(t.Context())
	var s *Snapshot
	if err := w.Run(ctx, func(first *Snapshot) { s = first; cancel() }); err != nil || s == nil {
		t.Fatal(s, err)
	}
	for _, e := range s.Entries {
		if v := &e.Verdict; v.Sentence == "" || v.Evidence != nil || v.Originals != nil || v.Next != nil {
			t.Errorf("%s: %+v", e.Path, v)
		}
		if v := e.Judge(s.Time); len(v.Evidence) == 0 || v.State != e.Verdict.State || v.Sentence != e.Verdict.Sentence {
			t.Errorf("%s is %+v, judged anew %+v", e.Path, e.Verdict, v)
		}
	}
}
