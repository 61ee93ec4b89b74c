package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"holdfast/fslock/verdict"
	"holdfast/tui"
	"holdfast/tui/text"
	"holdfast/watch"
)

// maxField is how many cells of a text from disk a sentence has room for: a record may hold 64 KiB of it. JSON has
// it all.
const maxField = 200

// maxName is how many cells a name has room for where a line has more to say.
const maxName = 60

// short is text from disk in as few cells as a sentence has room for, made safe.
func short(st text.Style, s string) string { return st.CutMiddle(st.Safe(s), maxField) }

// shortener makes what a record says short wherever that stands in a sentence. What is on disk under the entry's
// own path and id stays whole: a command or a path with a hole in it is of no use.
func shortener(st text.Style, h *verdict.Holder, more ...string) *strings.Replacer {
	fields := more
	if h != nil {
		fields = append(fields, h.Host, h.OwnerBootID, h.BlockID, h.Channel, h.Version, h.ClaimID, h.WriterEpoch)
	}
	var pairs []string
	for _, field := range fields {
		if len(field) <= maxField { // it takes no more cells than bytes, until it is made safe
			continue
		}
		quoted := strconv.Quote(field)
		pairs = append(pairs, field, short(st, field), quoted[1:len(quoted)-1], short(st, field))
	}
	return strings.NewReplacer(pairs...)
}

// shortenerOf is the shortener of all that was read for an entry.
func shortenerOf(st text.Style, e *watch.Entry) *strings.Replacer {
	more := []string{e.Name, e.Checkout}
	switch f := e.Subject.(type) {
	case *verdict.LeaseFacts:
		if f.Record != nil {
			more = append(more, f.Record.InstanceID, f.Record.Ours.KernelBootID)
		}
	case *verdict.LockFacts:
		if f.Token != nil && f.Token.Record != nil {
			more = append(more, f.Token.Record.Hostname, f.Token.Record.WriterEpoch)
		}
		if f.Record != nil && f.Record.BootID != nil {
			more = append(more, *f.Record.BootID)
		}
	default:
	}
	return shortener(st, e.Holder(), more...)
}

// unseen are the places that were to be looked at and could not be, or that somebody named and that are not there.
func unseen(s *watch.Snapshot) []string {
	var places []string
	for _, e := range s.Errors {
		message := e.Err.Error()
		if !strings.Contains(message, e.Path) {
			message = e.Path + ": " + message
		}
		places = append(places, message)
	}
	for _, r := range s.Roots {
		if r.Kind == "missing" && r.ChosenBy != "" && !watch.Discovered(r) && !hasError(s, r.Path) {
			places = append(places, r.Path+": it is not there")
		}
	}
	return places
}

func hasError(s *watch.Snapshot, path string) bool {
	for _, e := range s.Errors {
		if e.Path == path {
			return true
		}
	}
	return false
}

// tellUnseen names them, after what could be looked at was told; all but the first, which the headline names.
func tellUnseen(w io.Writer, st text.Style, places []string) {
	const most = 20
	for i, place := range places {
		if i == most {
			fmt.Fprintf(w, "and %d more; --json names them all\n", len(places)-most)
			break
		}
		if i > 0 {
			fmt.Fprintf(w, "could not be looked at: %s\n", short(st, place))
		}
	}
}

const seeWhy = " `holdfast why` tells more."

// headline says whether anything is stuck, and that not all could be looked at.
func headline(st text.Style, snap *watch.Snapshot) string {
	stuck, places := snap.Stuck(), unseen(snap)
	var parts []string
	if len(stuck) > 0 {
		parts = append(parts, st.CutMiddle(tui.Headline(st, stuck, "", 2*maxName), maxField)+seeWhy)
	}
	if len(places) > 0 {
		verb := "places could not be looked at"
		if len(places) == 1 {
			verb = "place could not be looked at"
		}
		parts = append(parts, fmt.Sprintf("%d %s: %s.", len(places), verb, short(st, strings.TrimSuffix(places[0], "."))))
	}
	switch {
	case len(parts) == 0:
		parts = append(parts, tui.Headline(st, nil, "", 0))
	case len(stuck) == 0 && len(snap.Entries) > 0:
		parts = append(parts, "Nothing else is stuck.")
	}
	return strings.Join(parts, " ")
}
