package tui

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/watch"
)

func forms() []Export {
	form := func(w io.Writer, s *watch.Snapshot) error {
		_, err := fmt.Fprintf(w, "%d entries\n", len(s.Entries))
		return err
	}
	return []Export{{"json", form}, {"txt", form}}
}

func exporting(t *testing.T) *desk {
	t.Helper()
	s := screenFor()
	s.Exports, s.ReadOnly = forms(), true // which does not forbid it
	s.tests.exports = filepath.Join(t.TempDir(), "new", "dir")
	d := sit(t, s, 200, 40)
	return d
}

func TestExportWritesNewFilesForTheirOwnerAlone(t *testing.T) {
	d := exporting(t)
	d.refuses("ctrl+s", "nothing was looked at yet")
	d.see(everything(noon))
	d.wants("16 entries 1 token")
	d.press("!") // what the list leaves out is exported all the same
	for range 2 {
		d.finish(d.press("ctrl+s"))
	}
	for _, name := range []string{"20260314-140229.json", "20260314-140229.txt", "20260314-140229-2.json", "20260314-140229-2.txt"} {
		path := filepath.Join(d.exportDir, "holdfast-"+name)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		content, _ := os.ReadFile(path)
		if info.Mode().Perm()&0o077 != 0 || string(content) != fmt.Sprintf("%d entries\n", len(d.snap.Entries)) {
			t.Errorf("%s: mode %v, %q", name, info.Mode(), content)
		}
	}
	d.wants("Exported 16 entries and 1 of their tokens and temps: ")
	if want := filepath.Join(d.exportDir, "holdfast-20260314-140229-2.json and .txt"); !strings.Contains(d.note.text, want) {
		t.Errorf("%q does not name %s", d.note.text, want)
	}
}

func TestExportFollowsNoLinkAndTellsErrors(t *testing.T) {
	d := exporting(t)
	d.see(everything(noon))
	if err := os.MkdirAll(d.exportDir, 0o700); err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.Symlink(victim, filepath.Join(d.exportDir, "holdfast-20260314-140229.json")); err != nil {
		t.Skip(err)
	}
	d.finish(d.press("ctrl+s"))
	if _, err := os.Lstat(victim); err == nil {
		t.Error("it was written through a link")
	}
	d.wants("-2.json and .txt")

	d.exports[1].Write = func(io.Writer, *watch.Snapshot) error { return errMadeUp }
	d.finish(d.press("ctrl+s"))
	d.wants("-3.json only: made up")

	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.exportDir = filepath.Join(victim, "under")
	d.finish(d.press("ctrl+s"))
	d.wants("Not exported:")
	if !d.note.bad {
		t.Error("it is told as if it had worked")
	}
	d.exports = nil
	d.refuses("ctrl+s", "Nothing is exported")
}
