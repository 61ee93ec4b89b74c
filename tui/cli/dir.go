package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/fslock/verdict"
	"holdfast/sweep"
	"holdfast/tui"
	"holdfast/tui/text"
	"holdfast/watch"
)

// askDir adds the locks of the checkout that a directory lies in, where decoded names know of it, and the problems of
// what lies in the directory itself. A directory that is not the working one and lies in no such checkout is a root
// and nothing else.
func (q *inquiry) askDir(arg string) error {
	dir, err := filepath.Abs(arg)
	if err != nil {
		return failed(err)
	}
	q.searched = true
	layout, err := sweep.Recognise(dir)
	if err != nil {
		return failed(err)
	}
	// What is a root by its make is no checkout: the roots that would know of one need no look.
	isRoot := layout.Kind.Has(sweep.AgentMux) || layout.Kind.Has(sweep.AFT)
	known := false
	if arg == "." || !isRoot {
		if known, err = q.askCheckout(dir); err != nil {
			return err
		}
	}
	snap, err := q.look([]watch.Root{{Path: dir, ChosenBy: "argument"}})
	if err != nil {
		return err
	}
	switch {
	case len(snap.Entries) > 0 || len(snap.Errors) > 0 || isRoot:
		q.note(snap)
		q.addProblems(snap)
		q.say(summary(dir, snap)...)
	case known:
	case arg == "." || isCheckout(dir):
		q.say(q.noLock(dir))
	default:
		q.note(snap)
		q.say(tui.Empty(snap)...)
	}
	return nil
}

// askCheckout adds the locks of the checkout that dir lies in, and reports whether there are any.
func (q *inquiry) askCheckout(dir string) (known bool, err error) {
	snap, err := q.all()
	if err != nil {
		return false, err
	}
	above := enclosing(dir)
	for _, e := range snap.Entries {
		if e.Kind != watch.Lock || e.Checkout == "" {
			continue
		}
		if slices.ContainsFunc(above, func(at string) bool { return at == e.Checkout || sameFile(at, e.Checkout) }) {
			q.add(e)
			known = true
		}
	}
	return known, nil
}

// noLock says that no lock of the checkout is known, and where that was looked for.
func (q *inquiry) noLock(dir string) string {
	above := enclosing(dir)
	says := "No lock of the checkout " + above[len(above)-1]
	var places []string
	for _, root := range q.whole.Roots {
		if root.Kind != sweep.Missing.String() {
			places = append(places, root.Path)
		}
	}
	if len(places) == 0 {
		says += " is known: there is no place where one would be. --root names one."
	} else {
		says += " is in " + strings.Join(places, ", ")
		if n := len(q.whole.Errors); n > 0 {
			says += ", as far as that could be looked at."
		} else {
			says += ", so none of AFT's holds anything up there."
		}
	}
	return says + " Nor is a lease or lock in " + dir + " itself."
}

// enclosing are dir and the directories above it, up to the top of its checkout: the nearest with a .git. Without one
// dir stands alone.
func enclosing(dir string) []string {
	var dirs []string
	for at := dir; ; at = filepath.Dir(at) {
		dirs = append(dirs, at)
		switch _, err := os.Lstat(filepath.Join(at, ".git")); {
		case err == nil:
			return dirs
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission), at == filepath.Dir(at):
			return dirs[:1]
		}
	}
}

func isCheckout(dir string) bool {
	above := enclosing(dir)
	_, err := os.Lstat(filepath.Join(above[len(above)-1], ".git"))
	return err == nil
}

// summary says what is in a root beside its problems.
func summary(dir string, snap *watch.Snapshot) []string {
	var lines []string
	bad, total := 0, 0
	states := map[verdict.State]int{}
	for _, e := range snap.Entries {
		switch {
		case e.Kind != watch.Lease && e.Kind != watch.Lock:
			continue
		case e.IsProblem():
			bad++
		default:
			states[e.Verdict.State]++
		}
		total++
	}
	var rest []string
	for s := verdict.Unknown; s <= verdict.Litter; s++ {
		if n := states[s]; n > 0 {
			rest = append(rest, fmt.Sprintf("%d %s", n, s))
		}
	}
	switch healthy := strings.Join(rest, ", "); {
	case len(snap.Entries) == 0 && len(snap.Errors) == 0:
		lines = append(lines, tui.Empty(snap)...)
	case total == 0:
	case bad == 0:
		lines = append(lines, fmt.Sprintf("There is no problem in %s: %s.", dir, healthy))
	case bad == total:
		lines = append(lines, fmt.Sprintf("That is all there is in %s.", dir))
	default:
		lines = append(lines, fmt.Sprintf("Beside %s, in %s there is no other: %s.", text.Count(bad, "problem"), dir, healthy))
	}
	if apart := counts(snap); total == 0 && apart != "" {
		lines = append(lines, fmt.Sprintf("No lease or lock is in %s, but %s.", dir, strings.Trim(apart, " ()")))
	}
	return lines
}
