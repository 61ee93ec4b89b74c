package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/fslock/audit"
	"holdfast/sweep"
	"holdfast/tui/text"
)

func (a *app) logCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "log [PATH|ID]...",
		Short: "Print what was changed by hand: the audit log",
		Long: "Prints the audit log, newest last: when, what was done to what, by whom, and why. With arguments only what was\n" +
			"done to these. --json prints a line for each entry, with the record that was removed or replaced. An entry is\n" +
			"written before its change: it does not say that the change came about. A damaged line is told and the rest goes\n" +
			"on; exit 1 only if the log cannot be read.",
		Args: func(_ *cobra.Command, args []string) error {
			if slices.Contains(args, "") {
				return usage("an argument is empty")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.printLog(nil, args) },
	}
}

func (a *app) printLog(log *audit.Log, args []string) error {
	file, err := log.File()
	if err != nil {
		return failed(err)
	}
	names := make([]logged, 0, len(args))
	for _, arg := range args {
		names = append(names, loggedAs(arg))
	}
	found, entries := 0, 0
	var bad []error
	var unreadable error
	err = a.print(func(w io.Writer) {
		for e, err := range log.Entries() {
			if _, line := errors.AsType[*audit.LineError](err); line {
				bad = append(bad, err)
				continue
			}
			if err != nil {
				unreadable = err
				return
			}
			entries++
			if len(names) > 0 && !slices.ContainsFunc(names, func(n logged) bool { return n.is(&e) }) {
				continue
			}
			found++
			if a.json {
				writeJSON(w, e) // as it stands in the log
			} else {
				a.tellLogged(w, &e)
			}
		}
	})
	st := a.style()
	for _, line := range bad {
		fmt.Fprintf(a.Stderr, "holdfast: %s\n", short(st, line.Error()))
	}
	switch {
	case err != nil:
		return err
	case unreadable != nil:
		return failed(fmt.Errorf("the audit log cannot be read: %w", unreadable))
	case entries == 0:
		fmt.Fprintf(a.Stderr, "holdfast: the audit log is empty (%s)\n", st.Safe(file))
	case found == 0:
		fmt.Fprintf(a.Stderr, "holdfast: the audit log tells nothing of %s (%s)\n", short(st, strings.Join(args, ", ")), st.Safe(file))
	}
	return nil
}

// logged is what the log can know by one word of a person.
type logged struct {
	id    string
	paths []string
}

func loggedAs(arg string) logged {
	l := logged{paths: []string{audit.Canonical(arg)}}
	if !hasSeparator(arg) {
		l.id = arg
	}
	// All that concerns a lease is told of its would-be file.
	if id, isLease := sweep.LeaseOf(l.paths[0]); isLease {
		l.paths = append(l.paths, filepath.Join(filepath.Dir(l.paths[0]), id+".lease.json"))
	}
	return l
}

func (l logged) is(e *audit.Entry) bool {
	return l.id != "" && e.ID == l.id || slices.Contains(l.paths, e.Path)
}

// tellLogged prints one line.
func (a *app) tellLogged(w io.Writer, e *audit.Entry) {
	st := a.style()
	line := fmt.Sprintf("%s %s %s by %s", e.Time.Local().Format(time.DateTime), st.Pad(short(st, e.Action), 6), short(st, loggedWhat(e)), short(st, who(e.Who)))
	switch {
	case e.EpochNew > 0:
		line += fmt.Sprintf(", epoch %d", e.EpochNew)
	case e.EpochOld > 0:
		line += fmt.Sprintf(", epoch was %d", e.EpochOld)
	}
	if e.Nonce != "" {
		line += ", nonce " + short(st, e.Nonce)
	}
	if e.Reason != "" {
		line += ": " + short(st, e.Reason)
	}
	fmt.Fprintln(w, line)
}

// loggedWhat is what an entry was about.
func loggedWhat(e *audit.Entry) string {
	what := e.Path
	if e.ID != "" {
		what = e.ID + " (" + e.Path + ")"
	}
	return strings.TrimSpace(e.Kind + " " + what)
}

func who(w audit.Who) string {
	who := w.User
	if who == "" {
		who = fmt.Sprintf("uid %d", w.UID)
	}
	return fmt.Sprintf("%s, pid %d on %s", who, w.PID, orWord(w.Host, "an unknown host"))
}

// ago says how long ago t was.
func ago(t, now time.Time) string { return text.Long(max(0, now.Sub(t))) + " ago" }
