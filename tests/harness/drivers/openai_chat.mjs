// Drives the `openai` npm client against the gateway. The first argument says what to do; the last line printed is JSON.
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 5 });
const parameters = { type: "object", properties: { at: { type: "string" } }, required: ["at"] };
const look = (args) => `saw ${args.at}`;

async function whole(body) {
  return (await client.chat.completions.create(body)).choices[0].message;
}

async function streamed(body) {
  const stream = client.chat.completions.stream({ ...body, stream_options: { include_usage: true } });
  const final = await stream.finalChatCompletion();
  if (!final.usage) throw new Error("no usage");
  return final.choices[0].message;
}

// An agent's loop: every tool is called, then the next thing said, until nothing is left to say.
async function converse(opening, ask, ...later) {
  const messages = [
    { role: "developer", content: "You look at places." },
    { role: "user", content: opening },
  ];
  const tools = [{ type: "function", function: { name: "look", parameters } }];
  const rounds = [];
  for (;;) {
    const message = await ask({ model: "agent", messages, tools });
    messages.push(message);
    const calls = message.tool_calls ?? [];
    rounds.push(calls.length);
    for (const call of calls) {
      messages.push({ role: "tool", tool_call_id: call.id, content: look(JSON.parse(call.function.arguments)) });
    }
    if (calls.length) continue;
    if (!later.length) return { text: message.content, rounds };
    messages.push({ role: "user", content: later.shift() });
  }
}

// The client's own loop: it calls the functions itself.
async function runner() {
  const run = client.chat.completions.runTools({
    model: "agent",
    stream: true,
    messages: [{ role: "user", content: "scene:walk.runner please" }],
    tools: [{ type: "function", function: { name: "look", parameters, parse: JSON.parse, function: look } }],
  });
  return { text: await run.finalContent() };
}

async function responses() {
  const input = [{ role: "user", content: "scene:walk.responses please" }];
  const tools = [{ type: "function", name: "look", parameters, strict: false }];
  const rounds = [];
  for (;;) {
    const stream = client.responses.stream({ model: "agent", instructions: "You look at places.", input, tools, store: false });
    const answer = await stream.finalResponse();
    const calls = answer.output.filter((item) => item.type === "function_call");
    rounds.push(calls.length);
    if (!calls.length) return { text: answer.output_text, rounds };
    input.push(...answer.output);
    for (const call of calls) {
      input.push({ type: "function_call_output", call_id: call.call_id, output: look(JSON.parse(call.arguments)) });
    }
  }
}

const modes = {
  whole: () => converse("scene:walk.whole please", whole, "bye"),
  streamed: () => converse("scene:walk.streamed please", streamed, "bye"),
  retries: () => converse("scene:retries please", streamed),
  runner,
  responses,
};
console.log(JSON.stringify(await modes[process.argv[2]]()));
