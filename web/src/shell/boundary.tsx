import { Component, type ReactNode } from "react";

import { Link } from "../route/link";
import { Notice } from "../ui/notice";

interface Props {
  of: string; // the address of the page: another page begins anew
  children: ReactNode;
}

/** Boundary keeps a page that fails from taking the others with it, and says what to do. */
export class Boundary extends Component<Props, { failed: unknown; at: string }> {
  override state: { failed: unknown; at: string } = { failed: undefined, at: this.props.of };

  static getDerivedStateFromError(failed: unknown): { failed: unknown } {
    return { failed };
  }

  static getDerivedStateFromProps(props: Props, state: { at: string }): { failed: unknown; at: string } | null {
    return props.of === state.at ? null : { failed: undefined, at: props.of };
  }

  override render() {
    const { failed } = this.state;
    if (failed === undefined) return this.props.children;

    return isMissingCode(failed) ? <MissingCode /> : <Broken cause={failed} />;
  }
}

/** The words of browsers for a module that cannot be loaded. */
function isMissingCode(failed: unknown): boolean {
  return failed instanceof Error
    && /dynamically imported module|importing a module|unable to preload/i.test(failed.message);
}

const reload = () => { location.reload(); };

/** The files of a page are named by their content: a server of another version does not have those of this tab. */
function MissingCode() {
  return (
    <div role="alert">
      <Notice title="This page could not be loaded">
        <p>The server was updated since this tab was opened, or does not respond. What you have chosen stays.</p>
        <button className="primary" onClick={reload}>Reload</button>
      </Notice>
    </div>
  );
}

function Broken({ cause }: { cause: unknown }) {
  return (
    <div role="alert">
      <Notice title="This page has a fault">
        <p>The other pages work. If it happens again after a reload, report it with these words:</p>
        <pre>{cause instanceof Error ? `${cause.name}: ${cause.message}` : String(cause)}</pre>
        <p>
          <button onClick={reload}>Reload</button> <Link to="">Go to Home</Link>
        </p>
      </Notice>
    </div>
  );
}
