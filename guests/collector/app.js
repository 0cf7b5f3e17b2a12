// Many HTTP requests at a time, with the `fetch` that every JavaScript programmer knows.
//
// The engine waits for all of them in `wasi:io/poll`. A worker that is lost in the middle is rebuilt
// with the answers that had come, and only the rest is asked for again.

async function answerOf(url) {
  try {
    const response = await fetch(url);
    return `${response.status} ${await response.text()}`;
  } catch (failure) {
    return failure.message;
  }
}

export const api = {
  fetchAll: (urls) => Promise.all(urls.map(answerOf)),
};
