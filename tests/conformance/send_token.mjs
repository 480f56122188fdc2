// Sends the gateway's token with each request, because the suites have no option for a header.
// Usage: TOKEN=... node --import ./send_token.mjs .../dist/index.js server ...
import http from "node:http";
import { createRequire } from "node:module";

const authorization = `Bearer ${process.env.TOKEN}`;
const { Agent, setGlobalDispatcher } = createRequire(process.argv[1])("undici");
const withToken = (dispatch) => (options, handler) =>
  dispatch({ ...options, headers: { ...options.headers, authorization } }, handler);
setGlobalDispatcher(new Agent().compose(withToken));

const request = http.request;
http.request = (options, answer) =>
  request({ ...options, headers: { ...options.headers, authorization } }, answer);
