import { Notice } from "../../ui/notice";
import { Link } from "../../route/link";
import { Log } from "../../ui/log/log";

/** Logs shows the output of a job on the whole screen. */
export function Logs({ rest }: { rest: string }) {
  if (rest === "") {
    return <Notice title="Which job?"><p>Choose it on the page <Link to="jobs">Jobs</Link>.</p></Notice>;
  }

  return <Log job={rest} full />;
}
