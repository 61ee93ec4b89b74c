package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"holdfast/tui"
	"holdfast/tui/text"
	"holdfast/watch"
)

// explain prints all that is known of one entry.
func (q *inquiry) explain(w io.Writer, enc *encoder, e *watch.Entry) {
	st, v := q.style(), &e.Verdict
	state := st.State(v.State)
	if text.Color(q.color, q.Getenv, q.Output) {
		state = text.Colour(v.State, state)
	}
	marks := st.Marks(v.Flags, e.Held(q.seen.Time))
	words := shortenerOf(st, e)
	fmt.Fprintln(w, strings.TrimRight(state+"  "+st.CutMiddle(st.Safe(e.Title()), maxField)+" "+marks, " "))
	fmt.Fprintf(w, "  %s\n", st.Safe(words.Replace(v.Sentence)))
	line := func(head, says string) {
		fmt.Fprintf(w, "  %s %s\n", st.Pad(st.Safe(head), 10), strings.TrimRight(st.Safe(words.Replace(says)), " "))
	}
	if seen := e.Seen(); seen != nil && e.Holder() != nil {
		if p := enc.process(&seen.Proc); p.Name != "" {
			parts := []string{p.Name, p.User, p.Status, p.Command}
			parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
			line("process", fmt.Sprintf("pid %d %s", seen.Proc.PID, strings.Join(parts, ", ")))
		}
	}
	whole := func(head, says string) { fmt.Fprintf(w, "  %s %s\n", st.Pad(head, 10), st.Safe(says)) }
	for _, f := range tui.Facts(&q.seen, e, q.seen.Time) {
		switch f.Head {
		case "":
			fmt.Fprintf(w, "  %s\n", f.Says)
		case "next":
			if !strings.HasPrefix(f.Says, "holdfast why ") {
				whole(f.Head, f.Says)
			}
		case e.Kind.String(), "root": // to be copied
			whole(f.Head, f.Says)
		default:
			line(f.Head, f.Says)
		}
	}
}
