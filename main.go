// Holdfast shows who holds the file leases and file locks under a directory, says why a stuck one is stuck and when
// it clears by itself.
package main

import (
	"context"
	"os"

	"holdfast/tui/cli"
	"holdfast/tui/ttyguard"
)

func main() {
	ttyguard.Restore()
	os.Exit(cli.Main(context.Background(), os.Args[1:], cli.System()))
}
