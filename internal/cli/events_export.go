package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/atomicfile"
	"trainyard/internal/cli/exit"
)

// jsonLines is the format of exports: one object a line.
const jsonLines = "jsonl"

// exportEvents writes all entries after the one whose number is in a file, and keeps the number of the last one there.
// An entry is counted only after it was written, so none is left out whenever the export ends.
func (a *app) exportEvents(
	cmd *cobra.Command, client *api.Client, f api.EventFilter, endless bool, path string,
) error {
	ctx := cmd.Context()
	if f.Cursor != "" {
		return exit.Usagef(cmd, "give --after or --cursor-file, not both")
	}

	cursor, err := readCursor(path)
	if err != nil {
		return err
	}

	f.Cursor, f.Limit = cursor, pageLimit

	for {
		page, err := client.Events(ctx, f)
		if err != nil {
			return err
		}

		for _, e := range page.Events {
			if err := a.event(e); err != nil {
				return fmt.Errorf("write event: %w", err)
			}
		}

		if page.Next != "" && page.Next != f.Cursor {
			f.Cursor = page.Next
			if err := writeCursor(path, f.Cursor); err != nil {
				return err
			}
		}

		if len(page.Events) == 0 {
			break
		}
	}

	if !endless {
		return nil
	}

	return a.persistEvents(ctx, client, f, func(e api.Event) error {
		if err := a.event(e); err != nil {
			return err
		}

		return writeCursor(path, strconv.FormatUint(e.Seq, 10))
	})
}

// readCursor reads the number of the last entry that was exported, 0 if there was none.
func readCursor(path string) (string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "0", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the cursor: %w", err)
	}

	cursor := strings.TrimSpace(string(text))
	if _, err := strconv.ParseUint(cursor, 10, 64); err != nil {
		return "", fmt.Errorf("read the cursor: %s must hold the number of an entry, got %.40q", path, cursor)
	}

	return cursor, nil
}

func writeCursor(path, cursor string) error {
	if err := atomicfile.Write(path, []byte(cursor+"\n")); err != nil {
		return fmt.Errorf("keep the cursor: %w", err)
	}

	return nil
}
